"""The JSON Schema of a structured output: whether it is one, and whether an output is as it wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import jsonschema
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no types
from pydantic import JsonValue
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

_DATA = ("const", "default", "enum", "examples")  # of a JSON Schema: what looks like a $ref there is none


def checked_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema, if it is one of an object, and whole. Raises ValueError."""
    if not isinstance(schema.get("$schema", ""), str):
        raise ValueError("is not a JSON Schema: its $schema is not a string")  # noqa: TRY004  # pydantic wants this one
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"is not a JSON Schema: {error.message}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if (reference := _leads_nowhere(schema)) is not None:
        raise ValueError(f"has a $ref that leads nowhere: {reference[:100]}; put what it means into $defs")
    if schema.get("type", "object") != "object":
        raise ValueError('must describe an object ("type": "object")')
    return schema


def _leads_nowhere(schema: dict[str, JsonValue]) -> str | None:
    """A reference that is neither to a part of the schema nor to a standard. Below an $id, none is looked at."""
    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = REGISTRY.resolver_with_root(root)
    for reference in _references(schema, top=True):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return reference
    return None


def _references(part: JsonValue, *, top: bool = False) -> Iterator[str]:
    if isinstance(part, dict):
        if "$id" in part and not top:
            return
        if isinstance(reference := part.get("$ref"), str):
            yield reference
        part = [value for name, value in part.items() if name not in _DATA]
    children = part if isinstance(part, list) else ()
    for child in children:
        yield from _references(child)


def output_fault(schema: Mapping[str, JsonValue], output: object) -> str | None:
    """What is wrong with a structured output; None: it is as the schema wants it."""
    try:
        # With a registry of its own, it fetches nothing from the network.
        jsonschema.validators.validator_for(schema)(schema, registry=REGISTRY).validate(cast(Any, output))
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "the whole"
        return f"{where}: {error.message[:300]}"
    except RecursionError:
        return "it is nested too deeply"
    except Unresolvable as error:
        return f"{str(error.ref)[:100]}, to which output_schema refers, is not there"
    return None

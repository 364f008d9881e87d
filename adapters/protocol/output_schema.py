"""Structured output and its JSON Schema, a producer's: what it costs to apply is not known before.

Imports little: it is what a process of its own runs, see `workers.agents.output_validation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import jsonschema
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no types
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from adapters.protocol.nesting import is_deeper

if TYPE_CHECKING:
    from pydantic import JsonValue

_DATA = ("const", "default", "enum", "examples")  # what looks like a $ref there is none
_DEFINITIONS = ("#/$defs", "#/definitions")
MOST_LEVELS = (
    90  # of a schema, and of an output: with fewer than 100, a validator needs more frames than Python allows
)
TOO_DEEP = "it is nested too deeply"
_MOST_PARTS = 3_000  # of a plain schema
# Regular expressions may never come to an end, and hold up all threads of a process; comparing each with each, and
# references that are not counted below, may take for ever, too.
_COSTLY = frozenset(("patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"))
_COSTLY_TEXTS = frozenset(("pattern", "$dynamicRef", "$recursiveRef", "$anchor", "$id", "id"))


def checked_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema. Raises ValueError for one that cannot be applied."""
    if not isinstance(schema.get("$schema", ""), str):
        raise ValueError("is not a JSON Schema: its $schema is not a string")  # noqa: TRY004  # pydantic wants this one
    if is_deeper(schema, MOST_LEVELS):
        raise ValueError("is nested too deeply")
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"is not a JSON Schema: {error.message}") from error
    except OverflowError as error:  # a pattern that repeats something too often
        raise ValueError(f"is not a JSON Schema: {error}") from error
    except RecursionError as error:  # the caller's own stack is deep
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


def is_plain(schema: Mapping[str, JsonValue]) -> bool:
    """Whether applying it takes no longer than its size says: no regular expression, few references, no circle."""
    left, waiting = _MOST_PARTS, [cast("JsonValue", schema)]
    while waiting and left:
        part, left = waiting.pop(), left - 1
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            if not _COSTLY.isdisjoint(part) or any(
                isinstance(part[name], str) for name in _COSTLY_TEXTS & part.keys()
            ):
                return False
            waiting += part.values()
            if isinstance(reference := part.get("$ref"), str):
                place, _, name = reference.rpartition("/")
                defined = schema.get(place.removeprefix("#/"))
                if place not in _DEFINITIONS or not isinstance(defined, dict) or name not in defined:
                    return False
                waiting.append(defined[name])
    return not waiting


def output_fault(schema: Mapping[str, JsonValue], output: object) -> str | None:
    """What is wrong with a structured output; None: it is as the schema wants it. See `is_plain` before."""
    try:
        # With a registry of its own, it fetches nothing from the network.
        jsonschema.validators.validator_for(schema)(schema, registry=REGISTRY).validate(cast(Any, output))
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "the whole"
        return f"{where}: {error.message[:300]}"
    except RecursionError:
        return TOO_DEEP
    except Unresolvable as error:
        return f"{str(error.ref)[:100]}, to which output_schema refers, is not there"
    except Exception as error:  # such as a pattern that an old draft of JSON Schema has let pass
        return f"output_schema cannot be applied: {str(error)[:300] or type(error).__name__}"
    return None

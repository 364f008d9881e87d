"""Structured output and its JSON Schema. The schema is a producer's: the cost of applying it is unpredictable.

Imports little, because it runs in a separate process: see `workers.agents.output_validation`.
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

_DATA = ("const", "default", "enum", "examples")  # a $ref within these is data
_DEFINITIONS = ("#/$defs", "#/definitions")
# Of a schema, and of an output. Before 100 levels, a validator needs more frames than Python allows.
MOST_LEVELS = 90
TOO_DEEP = "it is nested too deeply"
_MOST_PARTS = 3_000  # of a plain schema
# A regular expression may never finish, and blocks all threads of a process. Comparing all items with each other,
# and references that are not counted below, may take forever, too.
_COSTLY = frozenset(("patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"))
_COSTLY_TEXTS = frozenset(("pattern", "$dynamicRef", "$recursiveRef", "$anchor", "$id", "id"))


def checked_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema. Raise ValueError if it cannot be applied."""
    if not isinstance(schema.get("$schema", ""), str):
        raise ValueError("is not a JSON Schema: its $schema is not a string")  # noqa: TRY004  # pydantic wants this one
    if is_deeper(schema, MOST_LEVELS):
        raise ValueError("is nested too deeply")
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"is not a JSON Schema: {error.message}") from error
    except OverflowError as error:  # a pattern with too high a repeat count
        raise ValueError(f"is not a JSON Schema: {error}") from error
    except RecursionError as error:  # the caller's own stack is deep
        raise ValueError("is nested too deeply") from error
    if (reference := _leads_nowhere(schema)) is not None:
        raise ValueError(f"has a $ref that cannot be resolved: {reference[:100]}; put its target into $defs")
    if schema.get("type", "object") != "object":
        raise ValueError('must describe an object ("type": "object")')
    return schema


def _leads_nowhere(schema: dict[str, JsonValue]) -> str | None:
    """Return a reference to neither a part of the schema nor a standard, or None. Skips what is below an $id."""
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
    """Return whether its size bounds the time to apply it: no regular expression, few references, no cycle."""
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
    """Return what is wrong with a structured output, or None if it is valid. Check `is_plain` first."""
    try:
        # Given a registry, it fetches nothing from the network.
        jsonschema.validators.validator_for(schema)(schema, registry=REGISTRY).validate(cast(Any, output))
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "the whole"
        return f"{where}: {error.message[:300]}"
    except RecursionError:
        return TOO_DEEP
    except Unresolvable as error:
        return f"{str(error.ref)[:100]}, to which output_schema refers, does not exist"
    except Exception as error:  # such as a pattern that an old draft of JSON Schema accepts
        return f"output_schema cannot be applied: {str(error)[:300] or type(error).__name__}"
    return None

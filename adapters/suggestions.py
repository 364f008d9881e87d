"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

_NAME = 128  # compared characters of a name
_DEPTH = 8  # nested references; our schemas have fewer


def meant(name: str, known: Iterable[str], variables: str = "") -> str:
    """Return `; did you mean NAME?` to append to a message, or "" if no known name is similar.

    `variables` is the prefix of environment variables: with it, the name is shown as a variable.
    """
    near = get_close_matches(name[:_NAME], list(known), n=1)
    if not near:
        return ""
    return f"; did you mean {variables + near[0].upper() if variables else near[0]}?"


def meant_field(model: type[BaseModel], loc: Sequence[int | str]) -> str:
    """Return the suggestion for a field that a model refused as unknown; `loc` is its place in the document."""
    *places, name = loc
    schema = _schema(model)
    return meant(str(name), _fields(schema, schema.get("$defs", {}), places))


@lru_cache
def _schema(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema()


def _fields(schema: Mapping[str, Any], definitions: Mapping[str, Any], places: Sequence[int | str]) -> set[str]:
    """Return the field names allowed at a place. Pydantic's names of union members are not places."""
    here = list(_alternatives(schema, definitions))
    if not places:
        return {name for each in here for name in each.get("properties", {})}
    place, *further = places
    inner = [found for each in here for found in _inside(each, place)] or [schema]
    return {name for each in inner for name in _fields(each, definitions, further)}


def _inside(schema: Mapping[str, Any], place: int | str) -> Iterator[Mapping[str, Any]]:
    properties = schema.get("properties", {})
    if place in properties:
        yield properties[place]
    elif isinstance(place, int):
        yield from (each for each in [schema.get("items")] if isinstance(each, dict))
    else:
        each_key = (schema.get("additionalProperties"), *schema.get("patternProperties", {}).values())
        yield from (each for each in each_key if isinstance(each, dict))


def _alternatives(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int = 0
) -> Iterator[Mapping[str, Any]]:
    """Yield a schema with its references followed, and each member of a union."""
    if depth > _DEPTH:
        return
    yield schema
    if "$ref" in schema:
        yield from _alternatives(definitions[schema["$ref"].rpartition("/")[2]], definitions, depth + 1)
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _alternatives(each, definitions, depth + 1)

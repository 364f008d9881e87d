"""Validation of external documents, with one-line errors that name each invalid field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from adapters.errors import InvalidRequest
from adapters.suggestions import meant_field

UNKNOWN = "extra_forbidden"  # pydantic's error type for an unknown field
_GUESSES = 5  # suggestions at most, so that a document full of unknown fields costs little
_DEPTH = 6  # parts of an invalid field's dotted name
# Replacements for pydantic's messages that use Python's terms, by error type.
_SAID = {
    UNKNOWN: "is not a known field",
    "missing": "is missing",
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "must be a JSON object"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a JSON list"),
}

M = TypeVar("M", bound=BaseModel)


def read_document(kind: type[M], document: object, **missing: str | None) -> M:
    """Validate a producer's document. Values of `missing` that are not None are used for omitted fields.

    Raise InvalidRequest, naming every invalid field.
    """
    if not isinstance(document, Mapping):
        raise InvalidRequest("must be one JSON object", field="request")
    fields = {name: value for name, value in missing.items() if value is not None}
    try:
        return kind.model_validate({**fields, **document})
    except ValidationError as error:
        raise invalid(error, kind=kind) from error


def invalid(error: ValidationError, prefix: str = "", *, kind: type[BaseModel] | None = None) -> InvalidRequest:
    """Return an error that says in one line what is wrong with each field. `kind` adds suggestions for names."""
    faults = []
    for number, fault in enumerate(error.errors(include_url=False, include_context=False, include_input=False)):
        name = ".".join([prefix] * bool(prefix) + [str(part) for part in fault["loc"][:_DEPTH]]) or "request"
        text = _SAID.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
        if kind is not None and fault["type"] == UNKNOWN and number < _GUESSES:
            text += meant_field(kind, fault["loc"])
        faults.append((name, text))
    field, text = faults[0]
    others = "".join(f"; {name}: {message}" for name, message in faults[1:])
    return InvalidRequest(text + others, field=field)

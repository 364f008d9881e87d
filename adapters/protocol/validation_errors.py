"""Reading a document that somebody else wrote, and saying in one line what is wrong with which field of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from adapters.errors import InvalidRequest
from adapters.suggestions import meant_field

UNKNOWN = "extra_forbidden"  # what pydantic calls the fault of a field that is not there
_GUESSES = 5  # at what was meant: whoever sends a document of nothing but unknown fields is not served sooner
_DEPTH = 6  # of a faulty field's name, in dots
# What pydantic says in words of Python, by its type of fault.
_SAID = {
    UNKNOWN: "is no known field",
    "missing": "is missing",
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type"), "has to be a JSON object"
    ),
    **dict.fromkeys(("tuple_type", "list_type"), "has to be a JSON list"),
}

M = TypeVar("M", bound=BaseModel)


def read_document(kind: type[M], document: object, **missing: str | None) -> M:
    """Validate a producer's document; `missing` fills in for fields that it leaves out, where it is not None.

    Raises InvalidRequest with every faulty field named.
    """
    if not isinstance(document, Mapping):
        raise InvalidRequest("must be one JSON object", field="request")
    fields = {name: value for name, value in missing.items() if value is not None}
    try:
        return kind.model_validate({**fields, **document})
    except ValidationError as error:
        raise invalid(error, kind=kind) from error


def invalid(error: ValidationError, prefix: str = "", *, kind: type[BaseModel] | None = None) -> InvalidRequest:
    """Say in one line what is wrong with which field; of a `kind` of document also which may have been meant."""
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

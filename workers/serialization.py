"""JSON on the broker, by orjson. Its content type is plain `application/json`, so any producer can take part."""

from __future__ import annotations

import orjson
from kombu.serialization import register
from pydantic import BaseModel

NAME = "orjson"
CONTENT_TYPE = "application/json"


def _other(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Exception):  # Celery puts these into the headers of a retry
        return repr(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def dumps(value: object) -> str:
    """Any JSON value, pydantic models included, as text."""
    return orjson.dumps(value, default=_other, option=orjson.OPT_NON_STR_KEYS).decode()


def install() -> None:
    """Make `orjson` known to kombu; safe to call twice."""
    register(NAME, dumps, orjson.loads, content_type=CONTENT_TYPE, content_encoding="utf-8")

"""JSON on the broker, by orjson. The content type is plain `application/json`, so any producer can take part."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
from kombu.serialization import register
from pydantic import BaseModel

NAME = "orjson"
CONTENT_TYPE = "application/json"

# orjson reads integers beyond 64 bits as floats and cannot write them: Python's slower json handles those.
_LONG = re.compile(r"\d{19}")


def _other(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Exception):  # Celery puts these into the headers of a retry
        return repr(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def dumps(value: object) -> str:
    """Return any JSON value, including pydantic models, as text."""
    try:
        return orjson.dumps(value, default=_other, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
        return json.dumps(value, default=_other, ensure_ascii=False, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text."""
    known = text if isinstance(text, str) else bytes(text).decode()
    return json.loads(known, parse_constant=_refuse) if _LONG.search(known) else orjson.loads(known)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def install() -> None:
    """Register `orjson` with kombu; safe to call twice."""
    register(NAME, dumps, loads, content_type=CONTENT_TYPE, content_encoding="utf-8")

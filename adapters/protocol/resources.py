"""Limits on the resources that a turn takes of its host, as requests and settings state them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, Field, WithJsonSchema

_MOST = 2**53 - 1  # the largest integer that every JSON reader represents exactly
_LEAST_MEMORY = 64 * 2**20  # bytes; no agent starts with less
_LEAST_DISK = 2**20
_SIZE = r"^[0-9]{1,9}(\.[0-9]{1,3})?([KMGTP]i?)?B?$"


def _size(value: object) -> object:
    """Return the value, for ByteSize to read, which ignores whatever follows a unit."""
    if isinstance(value, str) and not value.isdecimal() and re.fullmatch(_SIZE, value) is None:
        raise ValueError("must be a number of bytes, or a size such as 512MiB or 4GiB")
    return value


def _schema(least: int) -> WithJsonSchema:
    size = {"type": "string", "pattern": _SIZE}
    return WithJsonSchema({"anyOf": [size, {"type": "integer", "minimum": least, "maximum": _MOST}]})


Memory = Annotated[ByteSize, BeforeValidator(_size), Field(ge=_LEAST_MEMORY, le=_MOST), _schema(_LEAST_MEMORY)]
Disk = Annotated[ByteSize, BeforeValidator(_size), Field(ge=_LEAST_DISK, le=_MOST), _schema(_LEAST_DISK)]
Processes = Annotated[int, Field(ge=10, le=1_000_000)]
Cpus = Annotated[float, Field(ge=0.1, le=4096)]  # cores

"""Search for leaked secrets, in plain or encoded form."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping


def places(secret: str, evidence: Mapping[str, bytes]) -> set[str]:
    """Return the names of the evidence that contains the secret: plain, or inside base64 or hexadecimal data."""
    shapes = tuple(_shapes(secret.encode()))
    return {name for name, data in evidence.items() if any(shape in data for shape in shapes)}


def _shapes(secret: bytes) -> Iterator[bytes]:
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for before in range(3):  # three bytes become four letters, so its place among others counts
        whole = base64.b64encode(b"\0" * before + secret)
        first = (before * 8 + 5) // 6
        last = (before + len(secret)) * 8 // 6
        yield whole[first:last]
        yield base64.urlsafe_b64encode(b"\0" * before + secret)[first:last]

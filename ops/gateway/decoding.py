"""Decoding of a compressed answer, for its meter only: the agent receives the bytes as they came."""

from __future__ import annotations

import zlib
from collections.abc import Callable

DECODABLE = ("gzip", "deflate", "identity")
_MOST_AT_ONCE = 2**20  # bytes: a small input may decompress to a thousand times its size


class Decoder:
    """Decoder of one body; passes decoded bytes on to `feed`. Once `failed`, it passes on nothing."""

    def __init__(self, coding: str, feed: Callable[[bytes], object]) -> None:
        """`coding`: the value of the header `content-encoding`."""
        self._feed = feed
        self._coding = coding.strip().lower() or "identity"
        self.failed = self._coding not in DECODABLE
        self._inflate = _gzip() if self._coding == "gzip" else None

    def decode(self, data: bytes) -> None:
        """Decode the next bytes."""
        if self.failed or not data:
            return
        if self._coding == "identity":
            self._feed(data)
            return
        try:
            self._decompress(data)
        except zlib.error:
            self.failed = True

    def _decompress(self, data: bytes) -> None:
        if self._inflate is None:
            self._inflate = _deflate(data)
        while True:
            decoded = self._inflate.decompress(data, _MOST_AT_ONCE)
            self._feed(decoded)
            if self._inflate.eof:
                data = self._inflate.unused_data
                if not data or self._coding != "gzip":
                    return
                self._inflate = _gzip()  # several may follow one another
            else:
                data = self._inflate.unconsumed_tail
                if not data and len(decoded) < _MOST_AT_ONCE:
                    return


def _gzip() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _deflate(data: bytes) -> zlib._Decompress:
    """Return the decoder of `deflate`: with a header (RFC 9110, section 8.4.1.2), or, as some send it, without."""
    return zlib.decompressobj(wbits=zlib.MAX_WBITS if data[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS)


def accepted(value: str | None) -> str:
    """Return the value of `accept-encoding` with those codings only that a meter can read."""
    wanted = [part.strip() for part in (value or "").split(",")]
    return ", ".join(part for part in wanted if part.split(";")[0].strip().lower() in DECODABLE) or "identity"

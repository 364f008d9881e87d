"""Lines from chunks of bytes, in linear time regardless of line length."""

from __future__ import annotations

MAX_LINE_BYTES = 64 * 2**20


class LineOverflow(Exception):
    """The line that begins at `offset` is longer than `limit` bytes."""

    def __init__(self, offset: int, limit: int) -> None:
        super().__init__(f"the line at byte {offset} is longer than {limit} bytes")
        self.offset = offset
        self.limit = limit


class LineFramer:
    """Splits a stream into lines and tracks the offset."""

    def __init__(self, offset: int = 0, max_line: int = MAX_LINE_BYTES) -> None:
        self.offset = offset  # of the incomplete line
        self._max_line = max_line
        self._parts: list[bytes] = []  # of that line
        self._size = 0  # total size of these parts

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their newlines. Raise LineOverflow."""
        if self._size + len(chunk) > self._max_line:
            self._check(chunk)
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines:
            self.offset += self._size + len(chunk) - len(rest)
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
            self._size = 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        return lines

    def _check(self, chunk: bytes) -> None:
        offset, size = self.offset, self._size
        for line in chunk.split(b"\n"):
            if size + len(line) > self._max_line:
                raise LineOverflow(offset, self._max_line)
            offset += size + len(line) + 1
            size = 0

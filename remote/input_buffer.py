"""Input of a running turn: kept until it is written, and written again to each new attachment."""

from __future__ import annotations

MAX_INPUT_LINE_BYTES = 2**20  # a host's shell reads byte by byte: measured, about a second


class InputBuffer:
    """Input of one follower. Its lines are numbered after those that the host already had."""

    def __init__(self) -> None:
        self.stop: bytes | None = None  # asks the agent to finish by itself
        self.ended = False  # no more lines will follow
        self._lines: list[bytes] = []  # not yet confirmed by the host
        self._known: int | None = None  # lines confirmed by the host; None: it has not answered yet

    def say(self, line: bytes) -> None:
        """Keep a line. Raise ValueError if it is invalid or the input has ended."""
        if self.ended:
            raise ValueError("the input of this turn has already ended")
        check_line(line)
        self._lines.append(line)

    def arrived(self, lines: int) -> None:
        """Record that the host has this many lines, including those from before us."""
        if self._known is not None:
            del self._lines[: max(0, lines - self._known)]
        self._known = lines

    def after(self, number: int) -> tuple[int, bytes] | None:
        """Return the first line after that number which the host may lack: its number, and the bytes to send."""
        if self._known is None:
            return None
        number = max(number, self._known) + 1
        if number > self._known + len(self._lines):
            return None
        line = self._lines[number - self._known - 1]
        return number, b"S %d %d %b\n" % (number, len(line) + 1, line)


def check_line(line: bytes) -> None:
    """Raise ValueError if a host's shell cannot read this as one line."""
    if b"\n" in line or b"\0" in line:
        raise ValueError("a line for an agent must not contain a newline or a NUL byte")
    if len(line) > MAX_INPUT_LINE_BYTES:
        raise ValueError(f"a line for an agent may have at most {MAX_INPUT_LINE_BYTES:,} bytes, not {len(line):,}")

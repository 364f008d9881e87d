"""What a turn is told while it runs: kept until it is written, and written again to each new attachment."""

from __future__ import annotations

MAX_INPUT_LINE_BYTES = 2**20  # a host's shell reads them byte by byte: measured, about a second


class InputBuffer:
    """The words of one follower. Its lines are numbered on from those that the host had before."""

    def __init__(self) -> None:
        self.stop: bytes | None = None  # what asks the agent to end by itself
        self.ended = False  # no more lines will follow
        self._lines: list[bytes] = []  # those not known to have arrived
        self._known: int | None = None  # how many lines the host has for certain; None: it was not heard of yet

    def say(self, line: bytes) -> None:
        """Keep a line. Raises ValueError for what is none."""
        if self.ended:
            raise ValueError("the input of this turn was ended before")
        check_line(line)
        self._lines.append(line)

    def arrived(self, lines: int) -> None:
        """The host has so many lines, those from before us among them."""
        if self._known is not None:
            del self._lines[: max(0, lines - self._known)]
        self._known = lines

    def after(self, number: int) -> tuple[int, bytes] | None:
        """Return the first line behind that number which the host may lack: its number, and the word for it."""
        if self._known is None:
            return None
        number = max(number, self._known) + 1
        if number > self._known + len(self._lines):
            return None
        line = self._lines[number - self._known - 1]
        return number, b"S %d %d %b\n" % (number, len(line) + 1, line)


def check_line(line: bytes) -> None:
    """Raise ValueError for what a host's shell cannot read as one line."""
    if b"\n" in line or b"\0" in line:
        raise ValueError("a line for an agent holds no newline and no NUL byte")
    if len(line) > MAX_INPUT_LINE_BYTES:
        raise ValueError(f"a line for an agent has at most {MAX_INPUT_LINE_BYTES:,} bytes, not {len(line):,}")

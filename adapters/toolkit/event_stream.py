"""Server-sent events, split from a stream of bytes that may be cut anywhere.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

import re

MAX_EVENT = 32 * 2**20  # bytes; OpenAI's last event repeats the whole answer
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventStream:
    """Splitter of one stream. `skipped` counts the events that were longer than the limit."""

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self.skipped = 0
        self._limit = limit  # bytes of one event's data, and of one line
        self._line = bytearray()  # received, but not ended
        self._searched = 0  # bytes of it in which no line ends
        self._data: list[bytes] = []  # of the event that has not ended
        self._size = 0
        self._too_long = False
        self._cut = False  # the beginning of the line was dropped
        self._begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of each event that these bytes complete."""
        self._line += data
        events: list[bytes] = []
        begin = 0
        while (end := self._end_of_line()) is not None:
            self._take(bytes(self._line[begin : end.start()]), events)
            begin = self._searched = end.end()
        del self._line[:begin]
        # A `\r` at the end may be the first half of `\r\n`.
        self._searched = len(self._line) - self._line.endswith(b"\r")
        if len(self._line) > self._limit:
            self._drop_line()
        return events

    def _end_of_line(self) -> re.Match[bytes] | None:
        end = _LINE_END.search(self._line, self._searched)
        return None if end is None or (end[0] == b"\r" and end.end() == len(self._line)) else end

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if self._cut:
            self._cut = False
        elif not line:
            self._end_event(events)
        elif line == b"data" or line.startswith(b"data:"):
            self._add(line[5:].removeprefix(b" "))

    def _add(self, data: bytes) -> None:
        self._size += len(data) + 1
        self._too_long |= self._size > self._limit
        if self._too_long:
            self._data.clear()
        else:
            self._data.append(data)

    def _end_event(self, events: list[bytes]) -> None:
        if self._too_long:
            self.skipped += 1
        elif self._data:
            events.append(b"\n".join(self._data))
        self._data = []
        self._size = 0
        self._too_long = False

    def _drop_line(self) -> None:
        self._cut = self._too_long = True
        self._data.clear()
        # A `\r` stays: it ends the line, with or without a `\n` that may follow.
        del self._line[: self._searched]
        self._searched = 0

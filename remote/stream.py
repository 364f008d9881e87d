"""Parsers for the bytes of one attachment: the host's answer, the output's lines, the end marker."""

from __future__ import annotations

import re
from dataclasses import dataclass

from remote.framing import MAX_LINE_BYTES, LineFramer
from remote.spool import Batch, Exit

_LONGEST_ANSWER = 16_384
_READY = re.compile(r"([0-9]{1,18})(?: ([0-9]{1,18}))?")
_END = re.compile(
    rb'{"runturn":"[^"]*","exit":"(-|[0-9]{1,3})","reason":"(exit|cancel|lease|lost|memory|processes|disk)"'
    # Turns of older workers say nothing of this.
    rb'(?:,"cpu_ms":"([^"]{0,18})","memory_kib":"([^"]{0,18})","free_percent":"([^"]{0,18})")?}'
)


@dataclass(frozen=True, slots=True)
class Ready:
    """The attachment is established."""

    size: int  # bytes of output that already existed
    said: int | None = None  # input lines sent to the agent so far; None: the turn is not live


@dataclass(frozen=True, slots=True)
class Wanted:
    """The host needs something before it starts: the "prompt", or the word to "go" ahead."""

    what: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The host refuses to attach."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Removing:
    """The host is removing the spool, and then ends the channel."""


class Answer:
    """Finds the host's answers in a channel's output. Start-up files of its shell may print before them."""

    def __init__(self, nonce: str) -> None:
        self._ready = f"\nRT-READY {nonce} ".encode()
        self._refused = f"\nRT-REFUSED {nonce} ".encode()
        self._wanted = f"\nRT-SEND {nonce} ".encode()
        self._removing = f"\nRT-REMOVING {nonce}\n".encode()
        self._seen = b""
        self.rest = b""  # bytes after the answer

    def feed(self, chunk: bytes) -> Ready | Refused | Wanted | Removing | None:
        """Return an answer once it is complete. After Wanted, the actual answer is still to come."""
        self._seen = self._seen[-_LONGEST_ANSWER:] + chunk
        if ready := _READY.fullmatch(self._after(self._ready) or ""):
            return Ready(int(ready[1]), int(ready[2]) if ready[2] else None)
        if words := self._after(self._refused):
            code, _, detail = words.partition(" ")
            return Refused(code, detail.strip())
        if self._removing in self._seen:
            return Removing()
        if words := self._after(self._wanted):
            self._seen = self.rest
            return Wanted(words)
        return None

    def _after(self, mark: bytes) -> str | None:
        _, found, text = self._seen.partition(mark)
        words, complete, rest = text.partition(b"\n")
        if not (found and complete):
            return None
        self.rest = rest
        return words.decode("utf-8", "replace")


class StderrTail:
    """Finds the end of an agent's stderr in a channel's output, after the last of the agent's output."""

    def __init__(self, nonce: str) -> None:
        self._begin = f"\nRT-STDERR {nonce}\n".encode()
        self._end = f"\nRT-END {nonce}\n".encode()
        self._seen = b""

    def feed(self, chunk: bytes) -> bytes | None:
        """Return the end of stderr once it is complete."""
        self._seen += chunk
        before, begun, text = self._seen.partition(self._begin)
        if not begun:
            self._seen = before[-len(self._begin) :]
            return None
        text, complete, _ = text.partition(self._end)
        return text if complete else None


class EventStream:
    """Turns output into batches until the end marker arrives.

    Tools can write to the output, so only a marker with the turn's seal is one; anything like it is output.

    The marker is preceded by a newline. So an empty line before it, or a piece of a marker for which the disk had
    no space, is not output; a line like that is held back until the next one shows which it is.
    """

    def __init__(self, offset: int, size: int, seal: str, max_line: int = MAX_LINE_BYTES) -> None:
        """`size` is how many bytes of output existed before; `seal` must not be blank."""
        self.offset = offset  # of the first line not returned yet
        self.exit: Exit | None = None
        self._size = size
        self._marker = f'{{"runturn":"{seal}"'.encode()
        self._framer = LineFramer(offset, max_line)
        self._held: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Batch]:
        """Return the lines that `chunk` completes, and set `exit` at the marker. Raise LineOverflow."""
        lines = self._held + self._framer.feed(chunk)
        self._held = []
        for index, line in enumerate(lines):
            if line.startswith(self._marker) and (end := _parse_marker(line)):
                self.exit = end
                lines = lines[:index]
                break
        if lines and self._may_be_marker(lines[-1]):
            self._held = [lines.pop()]
        start, self.offset = self.offset, self._framer.offset - sum(len(line) + 1 for line in self._held)
        return self._batches(start, lines) if lines else []

    def _may_be_marker(self, line: bytes) -> bool:
        return self._marker.startswith(line) or line.startswith(self._marker)

    def _batches(self, start: int, lines: list[bytes]) -> list[Batch]:
        end, count = start, 0
        for line in lines if start < self._size else []:
            end += len(line) + 1
            count += end <= self._size
        batches = [Batch(start, lines[:count], replayed=True)] if count else []
        if count < len(lines):
            batches.append(Batch(batches[0].end if batches else start, lines[count:], replayed=False))
        return batches


def _parse_marker(line: bytes) -> Exit | None:
    found = _END.fullmatch(line)
    if found is None:
        return None
    code, _, cpu_ms, memory_kib, free = (_number(word) for word in found.groups())
    return Exit(code, found[2].decode(), cpu_ms, None if memory_kib is None else memory_kib * 1024, free)


def _number(word: bytes | None) -> int | None:
    return int(word) if word is not None and word.isdigit() else None

"""The spool: the directory on a host with one attempt of a turn."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SEAL = re.compile(r"[A-Za-z0-9]{0,64}")
_ROOT = re.compile(r"(?:~/|/)[^\0-\x1f\x7f]*[^\0-\x1f\x7f/]")


@dataclass(frozen=True, slots=True)
class Spool:
    """Location of one attempt on a host. Two starts in the same spool are one start."""

    root: str  # the directory of all spools on that host, absolute or below ~/; created if missing
    id: str  # its name there: letters, digits, dot, dash and underscore, at most 128
    seal: str = field(default="", repr=False)  # secret that proves the turn's end; blank: only for queries

    def __post_init__(self) -> None:
        if not _ROOT.fullmatch(self.root):
            raise ValueError(
                f"a spool root must be absolute or below ~/, without control characters, not {self.root!r}"
            )
        if not _ID.fullmatch(self.id):
            raise ValueError(f"a spool id consists of letters, digits, dot, dash and underscore, not {self.id!r}")
        if not _SEAL.fullmatch(self.seal):
            raise ValueError("a seal consists of at most 64 letters and digits")

    @property
    def path(self) -> str:
        """Return the spool's directory, for its host to expand."""
        return f"{self.root}/{self.id}"


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive lines of a turn's output."""

    offset: int  # of the first line in the output, in bytes
    lines: list[bytes]  # without their newlines, at least one; a line may be empty
    replayed: bool  # all of them existed before this attachment began

    @property
    def end(self) -> int:
        """Return the offset of the next line."""
        return self.offset + sum(map(len, self.lines)) + len(self.lines)


@dataclass(frozen=True, slots=True)
class Exit:
    """Exit of a turn. None of its processes is left."""

    code: int | None  # the agent's exit code, 128 + n after signal n; None: unknown
    # "exit": by itself; "cancel": on request; "lease": expired; "lost": its supervisor was killed; "memory",
    # "processes", "disk": over a limit.
    reason: str
    # Measured, so no part of what makes two ends equal. CPU: of the agent and all processes that it waited for.
    # Memory: the most that was seen, of the agent and its tools together. None: unknown.
    cpu_ms: int | None = field(default=None, compare=False)
    peak_memory_bytes: int | None = field(default=None, compare=False)
    least_free_percent: int | None = field(default=None, compare=False)  # of the host's memory, meanwhile

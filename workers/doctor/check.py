"""One check of the doctor, with its time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import asdict, dataclass
from typing import Any

from remote.daemon_threads import DaemonExecutor

LIMIT_S = 10.0  # per check


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome of one check."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""  # what to do, unless the detail says so
    host: str | None = None  # None: it is about the installation itself
    warning: bool = False  # it passes, with a reservation that the detail gives
    workers: tuple[str, ...] = ()  # those whose examination this is; empty: this process's own

    def document(self) -> dict[str, object]:
        """Return the fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any], workers: tuple[str, ...]) -> Check:
        """Return the check that a worker sent as a document. Raises TypeError if it is none."""
        return cls(**{**document, "workers": workers})


def unanswered(
    name: str, timeout_s: float, remedy: str = "find out what keeps it busy or unreachable, and try again"
) -> Check:
    """Return the outcome of a check that timed out."""
    return Check(name, False, f"no answer within {timeout_s:g} s", remedy)


class Begun:
    """A check that runs in a thread of its own. Its time limit counts from now on."""

    def __init__(self, name: str, check: Callable[[], Check], timeout_s: float = LIMIT_S) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._until = time.monotonic() + timeout_s
        self._examining = DaemonExecutor().submit(check)

    def outcome(self) -> Check:
        """Wait for its outcome; an error or a timeout becomes one."""
        if not wait([self._examining], max(0.0, self._until - time.monotonic())).done:
            return unanswered(self._name, self._timeout_s)
        error = self._examining.exception()
        if error is not None:  # the doctor must survive what it finds
            return Check(self._name, False, str(error) or type(error).__name__)
        return self._examining.result()


def bounded(name: str, check: Callable[[], Check], timeout_s: float = LIMIT_S) -> Check:
    """Run one check; an error or a timeout becomes its outcome."""
    return Begun(name, check, timeout_s).outcome()

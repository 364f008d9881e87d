"""One check of the doctor, and the limits of its patience."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import asdict, dataclass

from remote.daemon_threads import DaemonExecutor

LIMIT_S = 10.0  # for any one check


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""  # what to do, unless the detail says it
    host: str | None = None  # None: it is about the installation itself
    warning: bool = False  # it is in order, but for what the detail says

    def document(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def unanswered(
    name: str, timeout_s: float, remedy: str = "see what keeps it busy or out of reach, and try again"
) -> Check:
    """The outcome of a check that took too long."""
    return Check(name, False, f"no answer within {timeout_s:g} s", remedy)


def bounded(name: str, check: Callable[[], Check], timeout_s: float = LIMIT_S) -> Check:
    """Do one check; what goes wrong with it, or takes too long, is its outcome."""
    examining = DaemonExecutor().submit(check)
    if not wait([examining], timeout_s).done:
        return unanswered(name, timeout_s)
    error = examining.exception()
    if error is not None:  # a doctor that dies of an illness helps nobody
        return Check(name, False, str(error) or type(error).__name__)
    return examining.result()

"""One check of the doctor, and the limits of its patience."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

LIMIT_S = 10.0  # for any one check


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""  # what to do, unless the detail says it
    host: str | None = None  # None: it is about the installation itself

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
    outcome: queue.SimpleQueue[Check] = queue.SimpleQueue()

    def examine_it() -> None:
        try:
            outcome.put(check())
        except Exception as error:  # a doctor that dies of an illness helps nobody
            outcome.put(Check(name, False, str(error) or type(error).__name__))

    threading.Thread(target=examine_it, name=f"doctor-{name}", daemon=True).start()
    try:
        return outcome.get(timeout=timeout_s)
    except queue.Empty:
        return unanswered(name, timeout_s)

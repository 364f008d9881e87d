"""Liveness and readiness of a process, with reasons, for people and orchestrators.

Dependencies are polled on their own threads, so a health query is answered at once, whatever hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

Check = Callable[[], object]
Reason = Callable[[], str | None]

_PERIOD_S = 5.0
_SILENT_S = 15.0  # without an answer for this long, the dependency is considered hung


class Dependency:
    """A service that the process needs, polled every few seconds on its own thread."""

    def __init__(
        self,
        name: str,
        check: Check,
        *,
        period_s: float = _PERIOD_S,
        silent_s: float = _SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` reports a problem by raising any exception; people read its text."""
        self.name = name
        self._check = check
        self._period_s = period_s
        self._silent_s = silent_s
        self._clock = clock
        self._asked_at = clock()
        self._problem: str | None = "not checked yet"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"health-{name}", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling, without waiting for a check that hangs."""
        self._stopping.set()

    def problem(self) -> str | None:
        """Return the current problem, or None if the dependency answers."""
        silent_s = self._clock() - self._asked_at
        if silent_s > self._silent_s:
            return f"no answer for {silent_s:.0f} s"
        return self._problem

    def answers(self) -> bool:
        """Return True if there is no problem."""
        return self.problem() is None

    def ask(self) -> None:
        """Check once, now."""
        try:
            self._check()
        except Exception as error:  # any exception is a result here
            self._problem = " ".join(str(error).split()) or type(error).__name__
        else:
            self._problem = None
        self._asked_at = self._clock()

    def _run(self) -> None:
        while True:
            self.ask()
            if self._stopping.wait(self._period_s):
                return


class Health:
    """Health of the process, as served by `/livez` and `/readyz`. Use as a context manager."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._dependencies: list[Dependency] = []
        self._dead: dict[str, Reason] = {}
        self._unready: dict[str, Reason] = {}

    def need(self, dependency: Dependency) -> None:
        """Make the process unready while this dependency has a problem."""
        self._dependencies.append(dependency)
        self._unready[dependency.name] = dependency.problem

    def unready_if(self, name: str, reason: Reason) -> None:
        """Make the process unready while `reason` returns one."""
        self._unready[name] = reason

    def dead_if(self, name: str, reason: Reason) -> None:
        """Make the process due for a restart while `reason` returns one."""
        self._dead[name] = reason

    @property
    def dependencies(self) -> Mapping[str, Callable[[], bool]]:
        """Checks by dependency name; each returns True if the dependency answers."""
        return {dependency.name: dependency.answers for dependency in self._dependencies}

    def live(self) -> dict[str, str]:
        """Return the reasons to restart the process, by name; empty if it is alive."""
        return self._reasons(self._dead)

    def ready(self) -> dict[str, str]:
        """Return the reasons why the process cannot work, by name; empty if it is ready."""
        return self._reasons({**self._dead, **self._unready})

    def _reasons(self, checks: Mapping[str, Reason]) -> dict[str, str]:
        found = {name: reason() for name, reason in checks.items()}
        return {name: self._redact(reason) for name, reason in found.items() if reason is not None}

    def __enter__(self) -> Self:
        for dependency in self._dependencies:
            dependency.start()
        return self

    def __exit__(self, *_: object) -> None:
        for dependency in self._dependencies:
            dependency.stop()

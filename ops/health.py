"""Whether a process is alive, and whether it is ready: with reasons, for people and for orchestrators.

What a process needs, it asks for time and again on threads of its own. So a question about health is answered at
once, whatever hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

Check = Callable[[], object]
Reason = Callable[[], str | None]

_PERIOD_S = 5.0
_SILENT_S = 15.0  # without an answer for so long, whatever it is hangs


class Dependency:
    """Something that a process needs: asked every few seconds, on its own thread."""

    def __init__(
        self,
        name: str,
        check: Check,
        *,
        period_s: float = _PERIOD_S,
        silent_s: float = _SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` raises whatever it likes when there is a problem; its text is what people read."""
        self.name = name
        self._check = check
        self._period_s = period_s
        self._silent_s = silent_s
        self._clock = clock
        self._asked_at = clock()
        self._problem: str | None = "it was not asked yet"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"health-{name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; what hangs is not waited for."""
        self._stopping.set()

    def problem(self) -> str | None:
        """What is wrong; None: it answers."""
        silent_s = self._clock() - self._asked_at
        if silent_s > self._silent_s:
            return f"no answer for {silent_s:.0f} s"
        return self._problem

    def answers(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem() is None

    def ask(self) -> None:
        """Ask once, now."""
        try:
            self._check()
        except Exception as error:  # anything at all is an answer here
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
    """What `/livez` and `/readyz` answer. Use as a context manager."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._dependencies: list[Dependency] = []
        self._dead: dict[str, Reason] = {}
        self._unready: dict[str, Reason] = {}

    def need(self, dependency: Dependency) -> None:
        """Without it, the process is not ready."""
        self._dependencies.append(dependency)
        self._unready[dependency.name] = dependency.problem

    def unready_if(self, name: str, reason: Reason) -> None:
        """While there is a reason, the process is not ready."""
        self._unready[name] = reason

    def dead_if(self, name: str, reason: Reason) -> None:
        """While there is a reason, the process had better be started anew."""
        self._dead[name] = reason

    @property
    def dependencies(self) -> Mapping[str, Callable[[], bool]]:
        """Whether what is needed answers, by name."""
        return {dependency.name: dependency.answers for dependency in self._dependencies}

    def live(self) -> dict[str, str]:
        """Why the process had better be started anew, by name; empty: it is alive."""
        return self._reasons(self._dead)

    def ready(self) -> dict[str, str]:
        """Why the process cannot do its work, by name; empty: it is ready."""
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

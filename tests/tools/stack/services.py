"""One process of the stack: started with a log of its own, asked until it answers, and ended for certain."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.pages import answers
from tests.support.waiting import until

_START_S = 60.0
_LEAVE_S = 15.0


class Service:
    """A process. It has a session of its own: a Ctrl-C reaches the stack alone, which ends them in order."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        ready: str,
        *,
        headers: Mapping[str, str] | None = None,
        **process: Any,
    ) -> None:
        """`ready` is a page that can be had once it is ready."""
        self.name = name
        self.log = log
        self._ready = ready
        self._headers = headers
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **process,
            )

    def wait_ready(self) -> None:
        """Until it answers. Raises RuntimeError with what it said last if it does not."""
        ended = False

        def settled() -> bool:
            nonlocal ended
            ended = self.process.poll() is not None
            return ended or answers(self._ready, self._headers)

        try:
            until(settled, self.name, _START_S)
        except AssertionError as error:
            raise RuntimeError(f"{self.name} does not answer at {self._ready}:\n{self._said()}") from error
        if ended:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self._said()}")

    def stop(self) -> None:
        """As systemd and Docker do it: SIGTERM, and SIGKILL if that does not help."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def _said(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

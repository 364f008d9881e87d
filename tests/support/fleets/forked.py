"""`runturn` processes that start in a fifth of the time: forked from a server that has imported everything.

They run what `python -m` runs with their module. /proc, though, shows the server's command line and environment:
where a test looks at those, workers have to start as users start them, see `Fleet.forks`.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.connection
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

_AGENTS = (f"adapters.{name}.adapter" for name in ("claude_code", "claude_sdk", "codex", "gemini"))
_WORKER = ("workers.worker.runtime", "workers.cli.worker", "workers.worker.process")
Completed: TypeAlias = "subprocess.CompletedProcess[str]"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [__name__, *_WORKER, *_AGENTS, "tests.support.fleets.live_worker", "tests.support.fleets.frozen"]
)

# A start reads the exit status of every other process that has ended. Of two threads that read the same one, the
# second finds nothing, and takes that for the status 255 (CPython, multiprocessing/popen_forkserver.py).
_ONE_AT_A_TIME = threading.Lock()


class Forked:
    """A process of `runturn`, with what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        module: str,
        arguments: list[str],
        environment: Mapping[str, str],
        output: Path,
        errors: Path | None = None,  # as `output`
    ) -> None:
        args = (module, arguments, dict(environment), output, errors or output)
        self._process = CONTEXT.Process(target=_run, args=args, daemon=True)
        with _ONE_AT_A_TIME:
            self._process.start()

    @property
    def pid(self) -> int:
        """Its process ID."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None: it runs."""
        return self.poll()

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit status. Raises subprocess.TimeoutExpired."""
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("runturn", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def done(module: str, arguments: list[str], environment: Mapping[str, str], timeout_s: float) -> Completed:
    """Run a command to its end; raises subprocess.TimeoutExpired once it has taken too long, and was killed."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        process = Forked(module, arguments, environment, output, errors)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(arguments, code, output.read_text(), errors.read_text())


def _run(module: str, arguments: list[str], environment: dict[str, str], output: Path, errors: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for stream, file in ((1, output), (2, errors)):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(opened, stream)
        os.close(opened)
    sys.argv = ["runturn", *arguments]
    sys.modules.pop(module, None)  # what is imported already, runpy would warn of
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing does not

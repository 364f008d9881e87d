"""The demo's temporary directory, and the processes that it starts there and stops again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psutil

from ops.settings.state_dir import StateDir
from tests.support.processes import of_turns
from tests.support.waiting import until
from workers.brokers.embedded import EmbeddedBroker

_START_S = 60.0
_LEAVE_S = 20.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TERMINAL = ("TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")


class Interrupts:
    """Raises KeyboardInterrupt on Ctrl-C and other terminating signals, deferred where it would lose a process."""

    def __init__(self) -> None:
        self._deferring = self._pending = False
        for number in _SIGNALS:
            signal.signal(number, self._interrupt)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer interrupts to the end of this block."""
        self._deferring = True
        yield
        self._deferring = False
        if self._pending:
            raise KeyboardInterrupt

    def ignore(self) -> None:
        """Ignore interrupts from now on."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _interrupt(self, *_: object) -> None:
        self._pending = True
        if not self._deferring:
            raise KeyboardInterrupt


class Stage:
    """Environment of the demo. Use as a context manager: it leaves nothing behind, however the block exits."""

    def __init__(self) -> None:
        self._interrupts = Interrupts()
        self.root = Path(tempfile.mkdtemp(prefix="runturn-demo-"))
        self.home = self.root / "home"
        self.workspace = self.root / "workspace"
        for directory in (self.home, self.workspace):
            directory.mkdir()
        (self.workspace / "greet.py").write_text('print("helo world")\n')
        self.state = StateDir.open(self.root / "state")
        self.log = self.state.logs / "up.log"
        self._settings = self.root / "runturn.toml"  # empty, so that nobody's own configuration is read
        self._settings.touch()
        self._environment: dict[str, str] = {}
        self._running: list[subprocess.Popen[str]] = []

    def equip(self, environment: Mapping[str, str], claude: Path) -> None:
        """Set the environment of all commands, and the agent they run."""
        terminal = {name: os.environ[name] for name in _TERMINAL if name in os.environ}
        own = {name: value for name, value in environment.items() if not name.startswith("RUNTURN_")}
        self._environment = {
            **terminal,
            **own,
            "TMPDIR": str(self.root),  # where agents leave things lying
            "RUNTURN_CONFIG": str(self._settings),
            "RUNTURN_STATE_DIR": str(self.state.root),
            "RUNTURN_METRICS_PORT": "0",
            "RUNTURN_AGENT__COMMAND": str(claude),
            # From a cold disk, a binary of 380 MB takes its time until the first event.
            "RUNTURN_AGENT__READ_TIMEOUT_MS": "60000",
        }

    def start_up(self) -> None:
        """Start `runturn up` in the background. Raises RuntimeError with its log if it does not become ready."""
        with self.log.open("wb") as log:
            up = self._start("up", stdout=log, stderr=log)
        try:
            until(lambda: self._ready() or up.poll() is not None, "the worker", _START_S)
        except AssertionError as error:
            raise RuntimeError(f"runturn up: {error}") from error
        if not self._ready():
            raise RuntimeError(f"runturn up exited with {up.returncode}:\n{self.log.read_text()}")

    def run(self, *arguments: str) -> int:
        """Run a command that prints to our output; return its exit status."""
        sys.stdout.flush()
        return self._start(*arguments).wait()

    def output(self, *arguments: str) -> str:
        """Return the output of a command. Raises RuntimeError if it fails."""
        process = self._start(*arguments, stdout=subprocess.PIPE)
        said, _ = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"runturn {' '.join(arguments)} exited with {process.returncode}")
        return said

    def _start(self, *arguments: str, stdout: object = None, stderr: object = None) -> subprocess.Popen[str]:
        # In a session of its own: a Ctrl-C reaches us alone, and we pass it on, once.
        with self._interrupts.deferred():
            process = subprocess.Popen(
                [Path(sys.executable).with_name("runturn"), *arguments],
                env=self._environment,
                cwd=self.workspace,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
            self._running.append(process)
        return process

    def _ready(self) -> bool:
        return "worker is ready" in self.log.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._interrupts.ignore()
        for process in reversed(self._running):
            _end(process)
        self._end_agents()
        EmbeddedBroker(self.state.broker).stop()  # `up` has stopped it, unless it was killed
        shutil.rmtree(self.root)

    def _end_agents(self) -> None:
        left = of_turns(self.state.spool)
        for process in left:
            process.kill()
        psutil.wait_procs(left, _LEAVE_S)


def _end(process: subprocess.Popen[str]) -> None:
    """Stop a process as Ctrl-C would: `run` cancels its turn, `up` exits."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""A small fleet on this machine: an embedded broker, workers as real processes, a client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from celery.result import AsyncResult

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from ops.ledger import Ledger
from ops.settings.state_dir import StateDir
from tests.support.fleets.forked import Forked, done
from tests.support.ledgers import new_ledger
from tests.support.processes import agents, describe, end_turns, of_turns
from tests.support.waiting import until
from workers.app import create_app
from workers.brokers.embedded import EmbeddedBroker
from workers.client.sync import Client
from workers.errors import TurnFailed

WAIT_S = 90.0
MODULE = "workers.__main__"
RUNTURN = (sys.executable, "-m", MODULE)

# A result that somebody has waited for lives as long as its application. Whenever that is collected, in whichever
# test, its destructor would talk to a broker that is gone by then.
AsyncResult.__del__ = lambda _: None


class Worker:
    """One `runturn worker` process."""

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str],
        *arguments: str,
        prefix: Sequence[str] = (),
        module: str = MODULE,
        forks: bool = False,
    ) -> None:
        self.log = log
        self.process: subprocess.Popen[bytes] | Forked
        if forks and not prefix and "PYTHONPATH" not in environment:
            self.process = Forked(module, ["worker", *arguments], environment, log)
            return
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", module, "worker", *arguments],
                env=environment,
                stdout=stderr,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
            )

    def wait_ready(self) -> None:
        """Until it takes turns."""
        until(lambda: b"worker is ready" in self.log.read_bytes() or self.process.poll() is not None, "a worker")
        assert self.process.poll() is None, self.log.read_text()

    @property
    def metrics(self) -> str:
        """Where its metrics are."""
        return json.loads(self.log.read_text().partition("\n")[0])["metrics"]

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """As a redeploy does."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Until it has left."""
        return self.process.wait(timeout_s)


def told(task: AsyncResult) -> dict[str, Any]:
    """The result that a task's producer is told, whatever it says."""
    answer = task.get(timeout=WAIT_S, propagate=False)
    return answer.result if isinstance(answer, TurnFailed) else dict(answer)


class Fleet:
    """Everything below one state directory; use as a context manager."""

    module = MODULE
    forks = True  # its workers, from a server; False: they start as users start them, see `forked`

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None, **settings: str) -> None:
        self.root = root
        self.state = StateDir.open(root / "state")
        new_ledger(self.state.ledger_url)
        self.workspace = root / "workspace"
        self.workspace.mkdir()
        self.broker = EmbeddedBroker(self.state.broker)
        self.workers: list[Worker] = []
        self.environment = {
            "TMPDIR": tempfile.gettempdir(),  # where agents leave things lying
            **(environment or {"PATH": os.environ["PATH"], "HOME": str(root)}),
            "RUNTURN_STATE_DIR": str(self.state.root),
            "RUNTURN_METRICS_PORT": "0",
            # The machine is shared: five seconds until the first event are no promise here.
            "RUNTURN_AGENT__READ_TIMEOUT_MS": "60000",
            "RUNTURN_AGENT__RETRY_BACKOFF_MS": "50",
            **{f"RUNTURN_{name.upper()}": value for name, value in settings.items()},
        }

    def __enter__(self) -> Fleet:
        self.broker.ensure()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
        self.broker.stop()
        end_turns(self.state.spool)

    def start_worker(self, *arguments: str, prefix: Sequence[str] = ()) -> Worker:
        """A worker that is ready; `prefix` is a command that runs it."""
        log = Path(tempfile.mkstemp(prefix="worker-", suffix=".log", dir=self.state.logs)[1])
        worker = Worker(log, self.environment, *arguments, prefix=prefix, module=self.module, forks=self.forks)
        self.workers.append(worker)
        worker.wait_ready()
        return worker

    @cached_property
    def ledger(self) -> Ledger:
        """The books."""
        return Ledger.open(self.state.ledger_url)

    @cached_property
    def client(self) -> Client:
        """A producer."""
        return Client(create_app(self.broker.url), self.ledger)

    def request(self, prompt: str = "do it", **fields: Any) -> TurnRequest:
        """A request in this fleet's workspace."""
        return TurnRequest.parse({"prompt": prompt, "workspace": str(self.workspace), **fields})

    def recorded(self, recording: Path, **fields: Any) -> TurnRequest:
        """A request that replays a recording."""
        return self.request(agent="scripted", options={"recording": str(recording)}, **fields)

    def run(self, request: TurnRequest) -> TurnResult:
        """Queue and wait."""
        return self.client.result(self.client.enqueue(request), WAIT_S)

    def result(self, turn_id: str) -> TurnResult:
        """Wait."""
        return self.client.result(turn_id, WAIT_S)

    def events(self, turn_id: str) -> list[dict[str, Any]]:
        """All events of a turn as the ledger has them."""
        return [json.loads(line) for _, line in self.ledger.events.after(turn_id)]

    def command(self, *arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        environment = kwargs.get("env", self.environment)
        if self.forks and "cwd" not in kwargs and "PYTHONPATH" not in environment:
            return done(self.module, list(arguments), environment, WAIT_S)
        return subprocess.run(
            [sys.executable, "-m", self.module, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            **{"env": environment, **kwargs},
        )

    def agents(self) -> set[int]:
        """The pids of the agents that were started and whose spool is still there."""
        return agents(self.state.spool)

    def assert_nothing_left(self) -> None:
        """No process of any turn is left, and no spool."""
        until(lambda: not of_turns(self.state.spool), f"the end of {describe(of_turns(self.state.spool))}")
        until(lambda: not list(self.state.spool.iterdir()), "the spools to be removed")


def slow_recording(path: Path, recording: Path, pause_ms: int) -> Path:
    """The same recording with a pause before each line after the first."""
    lines = recording.read_text().splitlines()
    path.write_text(f'\n{{"after_ms":{pause_ms}}}\n'.join(lines) + "\n")
    return path

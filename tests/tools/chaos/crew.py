"""The two workers, and a manager that replaces any that exit, as systemd does elsewhere."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.support.fleets import stepped
from tests.support.fleets.fleet import Worker
from tests.support.waiting import until
from tests.tools.chaos.story import Story

_UNAVAILABLE = 3  # exit status of a worker that finds no broker or no ledger
_LOOK_S = 0.5


class Crew:
    """A fixed number of workers. Use as a context manager: workers that exit are replaced, for any reason."""

    def __init__(self, size: int, logs: Path, environment: Mapping[str, str], story: Story) -> None:
        self._story = story
        self._size = size
        self._logs = logs
        self.environment = environment
        self._lock = threading.Lock()
        self._serving: list[Worker] = []
        self._frozen: Worker | None = None
        self._skewed: Worker | None = None
        self._watchers: list[threading.Thread] = []
        self._closed = threading.Event()
        self._manager = threading.Thread(target=self._replace, name="manager", daemon=True)
        self.all: list[Worker] = []
        self.exits_s: list[float] = []  # from SIGTERM to the exit
        self.faults: list[str] = []
        self.replaced = 0  # because they found no broker or no ledger when they started

    def __enter__(self) -> Crew:
        for _ in range(self._size):
            self._start()
        self._manager.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._manager.join()
        for worker in self.all:
            if worker.process.poll() is None:
                worker.kill()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until all workers are ready."""
        until(
            lambda: sum(map(_is_ready, self._now())) == self._size,
            f"all workers to be ready; see {self._logs}",
            timeout_s,
        )

    def kill(self, rng: random.Random) -> None:
        """Kill a worker, as the kernel does when memory is short."""
        worker = self._one_less(rng)
        self._story.tell(f"{worker.log.name} is killed")
        worker.kill()
        self._start()

    def freeze(self, rng: random.Random) -> None:
        """Freeze a worker, as if its machine were suspended."""
        with self._lock:
            self._frozen = self._serving[rng.randrange(len(self._serving))]
        self._story.tell(f"{self._frozen.log.name} is frozen")
        self._frozen.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the frozen worker continue."""
        assert self._frozen is not None
        self._frozen.process.send_signal(signal.SIGCONT)

    def set_clock(self, rng: random.Random, step_s: float) -> None:
        """Set the clock of a worker's machine: it has one of its own."""
        with self._lock:
            self._skewed = self._serving[rng.randrange(len(self._serving))]
        self._story.tell(f"the clock of {self._skewed.log.name} steps by {step_s:.0f} s")
        stepped.step(step_s, _clock(self._skewed.log))

    def right_clock(self) -> None:
        """Set that clock right."""
        assert self._skewed is not None
        stepped.step(0.0, _clock(self._skewed.log))

    def terminate(self, rng: random.Random) -> None:
        """Stop a worker with SIGTERM, as a redeploy does."""
        self._tell(self._one_less(rng))
        self._start()

    def dismiss(self) -> None:
        """Stop all workers with SIGTERM, replace none, and wait until all have exited."""
        self._closed.set()
        self._manager.join()
        for worker in self._now():
            self._tell(worker)
        for thread in self._watchers:
            thread.join()

    def errors(self) -> Counter[str]:
        """Return the errors that the workers have logged, and how often."""
        found: Counter[str] = Counter()
        for worker in self.all:
            for line in worker.log.read_text(errors="replace").splitlines():
                if '"level":"error"' in line or '"level": "error"' in line or "[error" in line:
                    found[line[:160]] += 1
        return found

    def _now(self) -> list[Worker]:
        with self._lock:
            return list(self._serving)

    def _one_less(self, rng: random.Random) -> Worker:
        with self._lock:
            return self._serving.pop(rng.randrange(len(self._serving)))

    def _start(self) -> None:
        log = Path(tempfile.mkstemp(prefix=f"worker-{len(self.all):02}-", suffix=".log", dir=self._logs)[1])
        environment = {**self.environment, stepped.STEPPED: str(_clock(log))}
        worker = Worker(log, environment, module=stepped.__name__)
        with self._lock:
            self.all.append(worker)
            self._serving.append(worker)

    def _tell(self, worker: Worker) -> None:
        was_ready = _is_ready(worker)
        self._story.tell(f"{worker.log.name} gets SIGTERM")
        worker.terminate()
        thread = threading.Thread(target=self._time, args=(worker, was_ready, time.monotonic()), daemon=True)
        self._watchers.append(thread)
        thread.start()

    def _time(self, worker: Worker, was_ready: bool, told_at: float) -> None:
        try:
            status = worker.wait(60.0)
        except Exception:
            self.faults.append(f"{worker.log.name}: still running 60 s after SIGTERM")
            return
        took_s = time.monotonic() - told_at
        load = f"; load average {os.getloadavg()[0]:.0f}"
        self._story.tell(f"{worker.log.name} exited {took_s:.1f} s after SIGTERM, with status {status}{load}")
        if was_ready:
            self.exits_s.append(took_s)
            if status != 0:
                self.faults.append(f"{worker.log.name}: exit status {status} after SIGTERM")

    def _replace(self) -> None:
        while not self._closed.wait(_LOOK_S):
            for worker in self._now():
                status = worker.process.poll()
                if status is not None and self._dropped(worker):
                    self._story.tell(f"{worker.log.name} exited by itself with status {status}")
                    if _is_ready(worker) or status != _UNAVAILABLE:
                        self.faults.append(f"{worker.log.name}: exited by itself with status {status}")
                    self.replaced += 1
                    self._start()

    def _dropped(self, worker: Worker) -> bool:
        """Remove a worker from those serving; return False if it has already been removed."""
        with self._lock:
            if worker not in self._serving:
                return False
            self._serving.remove(worker)
            return True


def _clock(log: Path) -> Path:
    return log.with_suffix(".clock")


def _is_ready(worker: Worker) -> bool:
    return b"worker is ready" in worker.log.read_bytes()

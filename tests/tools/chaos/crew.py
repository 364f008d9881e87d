"""The two workers, and whoever sees to it that there are always two: what systemd does elsewhere."""

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

from tests.support.fleets.fleet import Worker
from tests.support.waiting import until
from tests.tools.chaos.story import Story

_UNAVAILABLE = 3  # exit status of a worker that finds no broker or no ledger
_LOOK_S = 0.5


class Crew:
    """Use as a context manager. A worker that leaves is replaced, whyever it leaves."""

    def __init__(self, size: int, logs: Path, environment: Mapping[str, str], story: Story) -> None:
        self._story = story
        self._size = size
        self._logs = logs
        self.environment = environment
        self._lock = threading.Lock()
        self._serving: list[Worker] = []
        self._frozen: Worker | None = None
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
        """Until all of them take turns."""
        until(
            lambda: sum(map(_is_ready, self._now())) == self._size,
            f"workers that are ready; see {self._logs}",
            timeout_s,
        )

    def kill(self, rng: random.Random) -> None:
        """One of them, as the kernel does when memory is short."""
        worker = self._one_less(rng)
        self._story.tell(f"{worker.log.name} is killed")
        worker.kill()
        self._start()

    def freeze(self, rng: random.Random) -> None:
        """One of them stands still, as on a machine that is suspended."""
        with self._lock:
            self._frozen = self._serving[rng.randrange(len(self._serving))]
        self._story.tell(f"{self._frozen.log.name} stands still")
        self._frozen.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on, and does not know what has happened."""
        assert self._frozen is not None
        self._frozen.process.send_signal(signal.SIGCONT)

    def terminate(self, rng: random.Random) -> None:
        """Tell one of them to leave, as a redeploy does."""
        self._tell(self._one_less(rng))
        self._start()

    def dismiss(self) -> None:
        """Tell all of them to leave, replace none, and wait until the last one has left."""
        self._closed.set()
        self._manager.join()
        for worker in self._now():
            self._tell(worker)
        for thread in self._watchers:
            thread.join()

    def errors(self) -> Counter[str]:
        """What the workers have logged as errors, and how often."""
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
        worker = Worker(log, self.environment)
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
            self.faults.append(f"{worker.log.name}: had not left 60 s after SIGTERM")
            return
        took_s = time.monotonic() - told_at
        load = f"; the machine's load is {os.getloadavg()[0]:.0f}"
        self._story.tell(f"{worker.log.name} has left, {took_s:.1f} s after SIGTERM, with {status}{load}")
        if was_ready:
            self.exits_s.append(took_s)
            if status != 0:
                self.faults.append(f"{worker.log.name}: exit status {status} after SIGTERM")

    def _replace(self) -> None:
        while not self._closed.wait(_LOOK_S):
            for worker in self._now():
                status = worker.process.poll()
                if status is not None and self._dropped(worker):
                    self._story.tell(f"{worker.log.name} has left by itself, with exit status {status}")
                    if _is_ready(worker) or status != _UNAVAILABLE:
                        self.faults.append(f"{worker.log.name}: left by itself with exit status {status}")
                    self.replaced += 1
                    self._start()

    def _dropped(self, worker: Worker) -> bool:
        """Whether it was still to serve: nobody has killed it just now."""
        with self._lock:
            if worker not in self._serving:
                return False
            self._serving.remove(worker)
            return True


def _is_ready(worker: Worker) -> bool:
    return b"worker is ready" in worker.log.read_bytes()

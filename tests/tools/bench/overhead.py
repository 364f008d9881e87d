"""Overhead of the whole stack on a short turn, compared with a plain Celery task that runs the same command.

Both have one worker with the same concurrency, the same broker and machine, and alternate within one run. A turn
additionally has a ledger, a supervisor with spool and lease, and events. CPU is that of the worker and everything
it starts, including the command itself on both sides.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery import Celery
from celery.result import AsyncResult

from adapters.contract import Session
from adapters.protocol.result import Status
from ops.settings import Settings
from tests.support.fleets.fleet import WAIT_S, Fleet
from tests.support.places import RECORDINGS
from tests.support.processes import of_turns
from tests.support.waiting import until
from tests.tools.bench.meter import PREFIX, Cpu, cpu
from tests.tools.bench.plain import QUEUE
from tests.tools.bench.rows import Rows, at_least, at_most, informs
from workers.agents.registry import build_registry

_WARM_UP, _ROUNDS, _TURNS = 5, 5, 20
_CROWDS, _QUEUED = 3, 100
_CONCURRENCY = 10
_LATENCY_MS, _CPU_MS, _RATE = 100.0, 60.0, 20.0
_RECORDING = RECORDINGS / "a_parallel_tools.jsonl"


def overhead() -> Rows:
    """Measure latency one at a time, CPU per turn, and turns per second with a hundred queued; medians."""
    with tempfile.TemporaryDirectory() as root, _sides(Path(root)) as (plain, turns):
        for side in (plain, turns):
            side.one_by_one(_WARM_UP)
        single = [(plain.one_by_one(_TURNS), turns.one_by_one(_TURNS)) for _ in range(_ROUNDS)]
        queued = [(plain.at_once(_QUEUED), turns.at_once(_QUEUED)) for _ in range(_CROWDS)]
    task, turn = (_Sample.median(samples) for samples in zip(*single, strict=True))
    tasks, crowd = (_Sample.median(samples) for samples in zip(*queued, strict=True))
    return {
        "plain_task_latency": informs(task.ms, "ms"),
        "turn_latency": informs(turn.ms, "ms"),
        "turn_latency_overhead": at_most(turn.ms - task.ms, _LATENCY_MS, "ms"),
        "plain_task_cpu": informs(task.cpu_ms, "ms"),
        "turn_cpu": informs(turn.cpu_ms, "ms"),
        "turn_cpu_of_the_worker": informs(turn.worker_ms, "ms"),
        "turn_cpu_overhead": at_most(turn.cpu_ms - task.cpu_ms, _CPU_MS, "ms"),
        "plain_task_cpu_at_100_queued": informs(tasks.cpu_ms, "ms"),
        "turn_cpu_at_100_queued": informs(crowd.cpu_ms, "ms"),
        "turn_cpu_of_the_worker_at_100_queued": informs(crowd.worker_ms, "ms"),
        "plain_tasks_a_second": informs(_QUEUED * 1000 / tasks.ms, "/s"),
        "turns_a_second": at_least(_QUEUED * 1000 / crowd.ms, _RATE, "/s"),
    }


@dataclass(frozen=True, slots=True)
class _Sample:
    """Measurements of several turns."""

    ms: float  # median of one, or all together
    cpu_ms: float  # each
    worker_ms: float  # of that, in the worker's own process

    @staticmethod
    def of(seconds: float, used: Cpu, count: int) -> _Sample:
        """Return the sample from the time and CPU that `count` turns took."""
        return _Sample(seconds * 1000, used.total * 1000 / count, used.program * 1000 / count)

    @staticmethod
    def median(samples: Sequence[_Sample]) -> _Sample:
        """Return the median of each figure."""
        return _Sample(
            statistics.median(sample.ms for sample in samples),
            statistics.median(sample.cpu_ms for sample in samples),
            statistics.median(sample.worker_ms for sample in samples),
        )


class _Side:
    """One worker. `start` queues work and returns a function that waits for it."""

    def __init__(self, meter: int, start: Callable[[], Callable[[], Any]], idle: Callable[[], bool]) -> None:
        self._meter = meter
        self._start = start
        self._idle = idle

    def one_by_one(self, count: int) -> _Sample:
        """Run `count` one after another, with the median latency."""
        times = []
        before = self._cpu()
        for _ in range(count):
            began = time.perf_counter()
            self._start()()
            times.append(time.perf_counter() - began)
        return _Sample.of(statistics.median(times), self._cpu() - before, count)

    def at_once(self, count: int) -> _Sample:
        """Run `count` at once, with the total time."""
        before = self._cpu()
        began = time.perf_counter()
        waits = [self._start() for _ in range(count)]
        for wait in waits:
            wait()
        return _Sample.of(time.perf_counter() - began, self._cpu() - before, count)

    def _cpu(self) -> Cpu:
        """Return the CPU time, once everything has finished, including clean-up."""
        until(self._idle, "the end of all turns")
        return cpu(self._meter)


@contextmanager
def _sides(root: Path) -> Iterator[tuple[_Side, _Side]]:
    """Start the plain worker and ours; yield both when they are ready."""
    with Fleet(root, agent__max_concurrent_agents=str(_CONCURRENCY)) as fleet:
        fleet.workspace = root / "repository"  # "workspace" is what those are called that turns bring
        fleet.workspace.mkdir()
        worker = fleet.start_worker(prefix=PREFIX)
        with _plain_worker(fleet) as plain:
            argv, cwd = _command(fleet)
            app = Celery(broker=fleet.broker.url, backend=fleet.broker.url, set_as_current=False)

            def start_task() -> Callable[[], Any]:
                task = app.send_task("plain.run", [argv, cwd], queue=QUEUE)
                return lambda: _got(task)

            def start_turn() -> Callable[[], Any]:
                turn_id = fleet.client.enqueue(fleet.recorded(_RECORDING))
                return lambda: _completed(fleet, turn_id)

            def no_turns() -> bool:
                return not of_turns(fleet.state.spool) and not list(fleet.state.spool.glob("*"))

            yield _Side(plain.pid, start_task, lambda: True), _Side(worker.process.pid, start_turn, no_turns)


def _got(task: AsyncResult) -> None:
    task.get(timeout=WAIT_S)
    task.backend = None  # or its destructor talks to a broker that may have gone


def _completed(fleet: Fleet, turn_id: str) -> None:
    result = fleet.client.result(turn_id, WAIT_S)
    assert result.status is Status.COMPLETED, result.error


def _command(fleet: Fleet) -> tuple[list[str], str]:
    """Return the command of a turn's agent, and its directory."""
    scripted = build_registry(Settings(state_dir=fleet.state.root)).get("scripted")
    command = scripted.build(fleet.recorded(_RECORDING), Session("", resume=False))
    return list(command.argv), command.cwd


@contextmanager
def _plain_worker(fleet: Fleet) -> Iterator[subprocess.Popen[bytes]]:
    log = fleet.state.logs / "plain.log"
    environment = {"PATH": os.environ["PATH"], "HOME": str(fleet.root), "PLAIN_BROKER_URL": fleet.broker.url}
    celery = (
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tests.tools.bench.plain",
        "worker",
        "-P",
        "threads",
        "-l",
        "INFO",
    )
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [*PREFIX, *celery, "-c", str(_CONCURRENCY), "--without-gossip", "--without-mingle"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: b" ready." in log.read_bytes() or worker.poll() is not None, "a plain worker")
        assert worker.poll() is None, log.read_text()
        yield worker
    finally:
        worker.kill()
        worker.wait()

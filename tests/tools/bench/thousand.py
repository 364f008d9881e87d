"""Many turns at once in one worker process, over SSH on a host whose sshd has its default limits.

Each is in a namespace. Their agents print what a conductor writes to them: one event per second each, with the
time in it. An event's latency is from there to a live subscriber: through agent, spool, follower, sshd, worker and
broker. All of them share this machine; the rows have the worker's share of its CPU, and the total.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
import urllib.request
from functools import partial
from pathlib import Path

import psutil

from adapters.isolation import Isolation
from adapters.protocol.result import Status
from tests.support.fleets.fleet import Fleet
from tests.support.ssh.ssh_host import ssh_host, ssh_hosts
from tests.support.waiting import until
from tests.tools.bench.crowd import Audience, Choir
from tests.tools.bench.rows import Rows, at_most, informs

_SIZES = (10, 100, 1000)
_WINDOW_S = 40.0  # of one event a second from every turn, in which everything is measured
_PATIENCE_S = 600.0  # for a thousand of anything
_KIB_A_TURN, _P99_MS, _CORES = 150.0, 250.0, 1.0
_THREADS, _CONNECTIONS = 100, 30  # of a worker, besides a thread for each turn; to its broker and result backend
_END_S = {100: 2.0, 1000: 15.0}  # until all have settled that have ended together
_SCRAPE_MS = 50.0  # of the worker's metrics, while it is at work
_AGENT = '#!/bin/sh\nfor pipe; do :; done\nexec cat "$pipe"\n'  # the recording is the last argument


def thousand_turns() -> Rows:
    """Measure 10, 100 and 1,000 turns at once; the memory goal is that of the largest crowd."""
    rows: Rows = {}
    for size in _SIZES:
        rows |= _crowd(size)
    return rows


def _crowd(size: int) -> Rows:
    with tempfile.TemporaryDirectory() as folder, ssh_host("h1", Path(folder)) as login:
        agent = login.program("agent", _AGENT)
        hosts = ssh_hosts(login.setting(agents={"scripted": str(agent)}, isolation=Isolation.NAMESPACE))
        patient = {"agent__read_timeout_ms": "600000", "agent__max_concurrent_agents": str(size)}
        with Fleet(Path(folder), ssh_hosts=hosts, **patient) as fleet, Choir(Path(folder), size) as choir:
            started = fleet.start_worker("--concurrency", str(size))
            return _measured(fleet, psutil.Process(started.process.pid), choir, _Prometheus(started.metrics))


def _measured(fleet: Fleet, worker: psutil.Process, choir: Choir, prometheus: _Prometheus) -> Rows:
    size = len(choir.pipes)
    before = worker.memory_info().rss
    began = time.perf_counter()
    with Audience(fleet) as audience:
        turns = [fleet.client.enqueue(fleet.recorded(pipe)) for pipe in choir.pipes]
        choir.begin()
        until(lambda: len(audience.heard) == size, "an event of every turn", _PATIENCE_S)
        started_s = time.perf_counter() - began
        choir.sing(5.0)  # until those that were late have caught up
        audience.forget()
        cpu, at = worker.cpu_times(), time.perf_counter()
        machine = psutil.cpu_times()
        with prometheus:
            choir.sing(_WINDOW_S)
        seconds = time.perf_counter() - at
        used, machine_used = worker.cpu_times(), psutil.cpu_times()
        memory, threads = worker.memory_info().rss, worker.num_threads()
        connections = audience.connections()
        time.sleep(1)  # the last events are under way
        late = sorted(audience.late)
        expected, heard = choir.written, len(late)
        ended = time.perf_counter()
        choir.end()
        for turn_id in turns:  # to ask for all of them again and again would take what is measured
            until(partial(fleet.ledger.reports.result, turn_id), "all results", _PATIENCE_S)
        ended_s = time.perf_counter() - ended
    results = [fleet.result(turn_id) for turn_id in turns]
    perfect = sum((result.status, result.attempts) == (Status.COMPLETED, 1) for result in results)
    own = (used.user + used.system - cpu.user - cpu.system) / seconds
    busy = sum(machine_used) - machine_used.idle - machine_used.iowait
    busy -= sum(machine) - machine.idle - machine.iowait
    rows: Rows = {
        "missing": at_most(size - perfect, 0, "turns"),
        "events_unheard": informs(max(0.0, 100 * (1 - heard / expected)), "%"),
        "memory": at_most((memory - before) / size / 1024, _KIB_A_TURN, "KiB per turn"),
        "threads": at_most(threads - size, _THREADS, "beyond one per turn"),
        "connections": at_most(connections, _CONNECTIONS, "to the broker, over all processes"),
        "latency_p50": informs(statistics.median(late) * 1000, "ms"),
        "latency_p99": at_most(late[int(0.99 * heard)] * 1000, _P99_MS, "ms"),
        "latency_max": informs(late[-1] * 1000, "ms"),
        "scrape_p50": at_most(statistics.median(prometheus.took) * 1000, _SCRAPE_MS, "ms"),
        "scrape_max": informs(max(prometheus.took) * 1000, "ms"),
        "worker_cpu": at_most(own, _CORES, "cores"),
        "machine_cpu": informs(busy / seconds, "cores"),
        "all_started": informs(started_s, "s"),
        "all_settled": at_most(ended_s, _END_S[size], "s") if size in _END_S else informs(ended_s, "s"),
    }
    if size < max(_SIZES):  # what a worker has once weighs most on those
        rows["memory"] = informs(rows["memory"]["value"], "KiB per turn")
    return {f"{name}_at_{size}": row for name, row in rows.items()}


class _Prometheus:
    """Scrapes a worker once a second."""

    def __init__(self, url: str) -> None:
        self.took: list[float] = []  # seconds, of each scrape
        self._request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Prometheus:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(1.0):
            began = time.perf_counter()
            with urllib.request.urlopen(self._request) as answer:
                answer.read()
            self.took.append(time.perf_counter() - began)

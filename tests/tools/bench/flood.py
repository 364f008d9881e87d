"""A turn whose agent prints 20 MB of lines that say nothing, beside others in the same worker."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.support.fleets.fleet import Fleet
from tests.support.waiting import until
from tests.tools.bench.crowd import Audience, Choir
from tests.tools.bench.rows import Rows, at_most, informs

_OTHERS = 10
_LINES = 10_000_000  # of two bytes
_PATIENCE_S = 600.0
_LATE_MS, _EVENTS, _STORED_KB = 250.0, 200, 50.0
_INIT = {"type": "system", "subtype": "init", "session_id": "s", "claude_code_version": "2.1.330", "tools": []}
_AGENT = f"""#!/bin/sh
[ "$1" = --version ] && {{ echo "2.1.330 (Claude Code)"; exit; }}
prompt=$(cat | tr -d '\\n')
[ "$prompt" = flood ] || exec cat "$prompt"
echo '{json.dumps(_INIT)}'
yes x | head -n {_LINES}
"""


def flood() -> Rows:
    """Measure what the others' subscribers notice, what the flood costs the worker, and what it leaves behind."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        agent = folder / "agent"
        agent.write_text(_AGENT)
        agent.chmod(0o755)
        environment = {"PATH": os.environ["PATH"], "HOME": root}
        agents = json.dumps({"claude-code": {"command": str(agent)}})
        patient = {"agent__read_timeout_ms": "600000", "agent__max_attempts": "1"}
        with Fleet(folder, environment, agents=agents, **patient) as fleet, Choir(folder, _OTHERS) as choir:
            started = fleet.start_worker("--concurrency", str(_OTHERS + 1))
            return _measured(fleet, psutil.Process(started.process.pid), choir)


def _measured(fleet: Fleet, worker: psutil.Process, choir: Choir) -> Rows:
    with Audience(fleet) as audience:
        turns = [fleet.client.enqueue(fleet.request(str(pipe))) for pipe in choir.pipes]
        choir.begin()
        until(lambda: len(audience.heard) == _OTHERS, "an event of every turn", _PATIENCE_S)
        calm = _while(choir, audience, time.perf_counter() + 10, lambda: False)
        before, cpu, began = worker.memory_info().rss, worker.cpu_times(), time.perf_counter()
        turn_id = fleet.client.enqueue(fleet.request("flood"))
        late = _while(
            choir, audience, began + _PATIENCE_S, lambda: fleet.ledger.reports.result(turn_id) is not None
        )
        took, used, memory = time.perf_counter() - began, worker.cpu_times(), worker.memory_info().rss
        choir.end()
        until(lambda: all(map(fleet.ledger.reports.result, turns)), "all results", _PATIENCE_S)
    stored = fleet.ledger.events.after(turn_id)
    return {
        "flood_latency_calm_p99": informs(calm[int(0.99 * len(calm))] * 1000, "ms"),
        "flood_latency_p50": informs(statistics.median(late) * 1000, "ms"),
        "flood_latency_p99": at_most(late[int(0.99 * len(late))] * 1000, _LATE_MS, "ms"),
        "flood_latency_max": informs(late[-1] * 1000, "ms"),
        "flood_settled": informs(took, "s"),
        "flood_worker_cpu": informs(used.user + used.system - cpu.user - cpu.system, "s"),
        "flood_memory": informs((memory - before) / 2**20, "MiB"),
        "flood_events": at_most(len(stored), _EVENTS, "events in the ledger"),
        "flood_stored": at_most(sum(len(line) for _, line in stored) / 1000, _STORED_KB, "kB in the ledger"),
    }


def _while(choir: Choir, audience: Audience, until_at: float, over: Callable[[], bool]) -> list[float]:
    """Let the others print until a time or an end; return how late their subscribers heard it, sorted."""
    audience.forget()
    while time.perf_counter() < until_at and not over():
        choir.sing(1.0)
    time.sleep(1)  # the last events are under way
    return sorted(audience.late)

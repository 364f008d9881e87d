"""Latency from queueing a turn to its agent's first event: via broker, worker, ledger, supervisor and spool."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from adapters.protocol.request import TurnRequest
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.tools.bench.rows import Rows, at_most, informs

_WARM_UP, _TURNS = 5, 40
_GOAL_MS = 60.0
_RECORDING = RECORDINGS / "a_parallel_tools.jsonl"


def first_event_latency() -> Rows:
    """Measure one turn at a time: one worker, embedded broker and ledger, the `scripted` agent; medians."""
    with tempfile.TemporaryDirectory() as root, Fleet(Path(root)) as fleet:
        fleet.start_worker()
        measured = [_one_turn(fleet, fleet.recorded(_RECORDING)) for _ in range(_WARM_UP + _TURNS)][_WARM_UP:]
    accepted, first, settled = (statistics.median(times) * 1000 for times in zip(*measured, strict=True))
    return {
        "enqueue_to_attempt_started": informs(accepted, "ms"),
        "enqueue_to_first_event": at_most(first, _GOAL_MS, "ms"),
        "enqueue_to_settled": informs(settled, "ms"),
    }


def until_first_event(fleet: Fleet, request: TurnRequest) -> float:
    """Run a turn to its end; return the seconds until its agent's first event."""
    return _one_turn(fleet, request)[1]


def _one_turn(fleet: Fleet, request: TurnRequest) -> tuple[float, float, float]:
    began = time.perf_counter()
    turn_id = fleet.client.enqueue(request)
    seen: dict[str, float] = {}
    for event in fleet.client.events(turn_id):
        seen.setdefault(event["event"], time.perf_counter() - began)
    return seen["attempt_started"], seen["session_started"], seen["turn_settled"]

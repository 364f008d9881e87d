"""What isolation adds to the start of a turn: the levels in turn, in one run, by one worker."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from adapters.isolation import Isolation
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.tools.bench.latency import until_first_event
from tests.tools.bench.rows import Rows, at_most, informs

_WARM_UP, _TURNS = 3, 40
_GOAL_MS = 10.0
_RECORDING = RECORDINGS / "a_parallel_tools.jsonl"


def contained_start() -> Rows:
    """Measure one turn at a time, from queueing it to its agent's first event; medians."""
    took: dict[Isolation, list[float]] = {level: [] for level in Isolation}
    shown = json.dumps([str(RECORDINGS)])
    with (
        tempfile.TemporaryDirectory() as root,
        Fleet(Path(root), isolation=Isolation.NONE, sandbox_paths=shown) as fleet,
    ):
        fleet.start_worker()
        for _ in range(_WARM_UP + _TURNS):
            for level, times in took.items():
                times.append(until_first_event(fleet, fleet.recorded(_RECORDING, isolation=level)))
    medians = {level: statistics.median(times[_WARM_UP:]) * 1000 for level, times in took.items()}
    least = medians.pop(Isolation.NONE)
    rows = {f"{level}_adds_to_start": at_most(median - least, _GOAL_MS, "ms") for level, median in medians.items()}
    return {"start_without_isolation": informs(least, "ms"), **rows}

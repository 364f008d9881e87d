"""Compare the simulation of `tests.tools.capacity` with a real fleet: the same turns, measured and simulated."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from ops.ledger import TurnRow
from tests.support.fleets import fleet as real
from tests.support.places import RECORDINGS
from tests.tools.bench.rows import Row, Rows, informs
from tests.tools.capacity import Fleet, Served, Turn, measure, simulate

_TURNS, _SLOTS = 40, 4
_LENGTH_S = 0.4
_BOUND = 0.35  # from the end of one turn to the start of the next one in its slot: no time, in the simulation


def capacity_check() -> Rows:
    """Run 40 turns of 0.4 s at once, on 4 slots. Their measured overhead is an input of the simulation."""
    served = _measured()
    overhead_s = statistics.fmean(each.ended - each.began for each in served) - _LENGTH_S
    fleet = Fleet(hosts=1, slots=_SLOTS, overhead_s=overhead_s)
    simulated = list(simulate(fleet, [each.turn for each in served]))
    rows: Rows = {"capacity_overhead": informs(overhead_s * 1000, "ms")}
    for name, run in (("measured", served), ("simulated", simulated)):
        figures = measure(run, fleet, 0.0, max(each.ended for each in run))
        rows[f"capacity_wait_{name}"] = informs(figures.waits.mean_s, "s")
        rows[f"capacity_rate_{name}"] = informs(len(run) / max(each.ended for each in run), "turns/s")
    for what in ("wait", "rate"):
        ratio = rows[f"capacity_{what}_measured"]["value"] / rows[f"capacity_{what}_simulated"]["value"]
        rows[f"capacity_{what}_ratio"] = _near_one(ratio)
    return rows


def _near_one(ratio: float) -> Row:
    return Row(value=ratio, unit="", goal=f"1 ± {_BOUND}", holds=1 - _BOUND <= ratio <= 1 + _BOUND)


def _measured() -> list[Served]:
    """Return turns that were queued at once, with their times from the ledger."""
    with (
        tempfile.TemporaryDirectory() as root,
        real.Fleet(Path(root), agent__max_concurrent_agents=str(_SLOTS)) as fleet,
    ):
        lines = (RECORDINGS / "a_parallel_tools.jsonl").read_text().splitlines()
        pause = f'{{"after_ms":{_LENGTH_S * 1000:.0f}}}'
        recording = Path(root) / "turn.jsonl"
        recording.write_text("\n".join([*lines[:-1], pause, lines[-1]]) + "\n")
        fleet.start_worker()
        fleet.run(fleet.recorded(recording))  # what is done once is done now
        queued = [fleet.client.enqueue(fleet.recorded(recording)) for _ in range(_TURNS)]
        for turn_id in queued:
            fleet.result(turn_id)
        rows = [fleet.ledger.reports.turn(turn_id) for turn_id in queued]
    began = min(row.created_at for row in rows)
    return sorted((_served(row, began) for row in rows), key=lambda each: each.turn.at)


def _served(row: TurnRow, began: float) -> Served:
    assert row.started_at is not None
    assert row.settled_at is not None
    turn = Turn(row.created_at - began, _LENGTH_S)
    return Served(turn, host=0, began=row.started_at - began, ended=row.settled_at - began)

"""How cost grows with the number of queued, running and settled turns.

Workers query the ledger all the time, so their queries must not slow down as history grows. People's queries may
take time in proportion to the turns in the answer, but not more.
"""

from __future__ import annotations

import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import redis

from adapters.protocol.request import TurnRequest
from ops.ledger import Claim, CostKey, Ledger
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.support.waiting import until
from tests.tools.bench.books import NOW, fill, give_back, id_of, queued, settled, settled_until
from tests.tools.bench.rows import Row, Rows, at_least, at_most, informs
from workers.brokers.redis_transport import UNACKED

_DRAINED = (10, 100, 1_000)
_CONCURRENCY = 10
_DRAIN_S = 600.0
_KEPT_KIB = 16.0  # of the worker's memory, once caches are warm: Celery remembers the last 1,000 tasks
_SETTLED = (1_000, 10_000, 100_000)
_QUEUED = (10, 100, 1_000, 10_000, 100_000)
_PRODUCERS = (1, 10, 100)
_ROUNDS = 15
_NOISE = 5.0  # what the same work may take longer on a machine that others use, too
_SORTED = math.log(100_000) / math.log(1_000)  # a bill is sorted by its keys: n log n
_FLOOR_MS = 1.0  # below that, a ratio says more about the machine
_HELD = 200  # claims of one worker
_TTL_S = 30.0
_RECORDING = RECORDINGS / "a_parallel_tools.jsonl"

Timed = dict[str, Callable[[], object]]


def drained_turns() -> Rows:
    """Measure one worker process that drains a queue, and the memory it keeps afterwards."""
    rows: Rows = {}
    for count in _DRAINED:
        with tempfile.TemporaryDirectory() as root, Fleet(Path(root)) as fleet:
            rows |= _drain(fleet, count)
    first, last = (rows[f"drain_{count}_rate"]["value"] for count in (_DRAINED[1], _DRAINED[-1]))
    rows["drain_rate_1000_vs_100"] = at_least(last / first, 1 / _NOISE, "x")
    few, many = (rows[f"drain_{count}_memory"]["value"] for count in (_DRAINED[1], _DRAINED[-1]))
    kept = (many - few) * 1024 / (_DRAINED[-1] - _DRAINED[1])
    rows["drain_memory_kept"] = at_most(kept, _KEPT_KIB, "KiB per turn")
    return rows


def _drain(fleet: Fleet, count: int) -> Rows:
    for _ in range(count):
        fleet.client.enqueue(fleet.recorded(_RECORDING))
    began = time.perf_counter()
    worker = psutil.Process(fleet.start_worker("--concurrency", str(_CONCURRENCY)).process.pid)
    ready, before = time.perf_counter(), worker.memory_info().rss

    def ended() -> int:
        return sum(outcome.turns for outcome in fleet.ledger.reports.totals().outcomes)

    until(lambda: ended() == count, f"{count} turns to be settled", _DRAIN_S)
    took = time.perf_counter() - ready
    until(lambda: not _left(fleet), "spools and messages to be removed", 60)
    after = worker.memory_info().rss
    name = f"drain_{count}"
    return {
        f"{name}_start": informs(ready - began, "s"),
        f"{name}_rate": informs(count / took, "turns/s"),
        f"{name}_memory": informs((after - before) / 2**20, "MiB"),
    }


def _left(fleet: Fleet) -> int:
    """Return the number of spools, messages and unanswered tasks that are left."""
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as broker:
        messages = broker.llen("runturn") + broker.hlen(UNACKED)
    return len(list(fleet.state.spool.iterdir())) + messages + len(fleet.ledger.waiters.unanswered(time.time()))


def settled_turns() -> Rows:
    """Measure the ledger's operations as settled turns accumulate. SQLite; medians."""
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as root, Ledger.open(f"sqlite:///{root}/ledger.db") as ledger:
        held = _hold(ledger)
        numbers = iter(itertools.count())
        written = 0
        for count in _SETTLED:
            fill(ledger._database, settled(numbers), count - written)
            written = count
            for name, call in {
                **_asked_by_workers(ledger, held, count),
                **_asked_by_people(ledger, settled_until(count)),
            }.items():
                rows[f"{name}_at_{count}"] = informs(_median_ms(call), "ms")
    flat = set(_asked_by_workers(ledger, held, 0))
    for name in sorted({row.rsplit("_at_", 1)[0] for row in rows}):
        rows[f"{name}_growth"] = _growth(rows, name, flat=name in flat)
    return rows


def _growth(rows: Rows, name: str, *, flat: bool) -> Row:
    """Return the slowdown with 100 times as many turns."""
    few, many = (max(rows[f"{name}_at_{count}"]["value"], _FLOOR_MS) for count in (_SETTLED[0], _SETTLED[-1]))
    return at_most(many / few, _NOISE * (1 if flat else _SORTED * _SETTLED[-1] / _SETTLED[0]), "x")


def _hold(ledger: Ledger) -> list[Claim]:
    """Return claims such as a worker holds."""
    for number in range(_HELD):
        ledger.queue.submit_many([TurnRequest(turn_id=f"held-{number}", prompt="x", workspace="/srv")], NOW)
    return ledger.queue.take("w", lambda _: True, NOW, _TTL_S, _HELD)


def _asked_by_workers(ledger: Ledger, held: list[Claim], count: int) -> Timed:
    """Return the operations that workers run every second, every few seconds, or for every turn."""
    numbers = itertools.count()

    def new() -> TurnRequest:
        return TurnRequest(turn_id=f"new-{count}-{next(numbers)}", prompt="x", workspace="/srv", labels={"a": "b"})

    return {
        "take": lambda: ledger.queue.take("w", lambda _: True, NOW - 10**8, _TTL_S, 10),
        "renew": lambda: ledger.queue.renew(held, NOW, _TTL_S),
        "open_attempts": ledger.hosts.open_attempts,
        "unanswered": lambda: ledger.waiters.unanswered(NOW),
        "announce": lambda: ledger.hosts.announce({"build1": {}}, NOW),
        "submit_many": lambda: ledger.queue.submit_many([new()], NOW),
        "admit": lambda: ledger.queue.admit(new(), "task", NOW),
        "turn_of": lambda: ledger.waiters.turn_of("unknown"),
        "totals": ledger.reports.totals,
        "queue_depths": ledger.reports.queue_depths,
        "attempts_by_spool": lambda: ledger.accounting.by_spool([f"{id_of('settled', 7)}.1", "unknown"]),
    }


def _asked_by_people(ledger: Ledger, now: float) -> Timed:
    """Return the operations that people run occasionally."""
    return {
        "history": ledger.reports.history,
        "history_failed": lambda: ledger.reports.history(status="failed"),
        "history_none_cancelled": lambda: ledger.reports.history(status="cancelled"),
        "history_none_waiting": lambda: ledger.reports.history(status="waiting"),
        "history_label": lambda: ledger.reports.history(label=("team", "team1")),
        "history_host": lambda: ledger.reports.history(host="host1"),
        "cost_by_model": lambda: ledger.reports.cost(CostKey.MODEL),
        "cost_by_label": lambda: ledger.reports.cost(CostKey.LABEL),
        "cost_by_label_of_8_hours": lambda: ledger.reports.cost(CostKey.LABEL, now - 8 * 3600),  # 960 turns
    }


def queued_turns() -> Rows:
    """Measure one `take` of 10 turns, by number of waiting turns and of producers. SQLite; medians."""
    rows: Rows = {}
    for producers in _PRODUCERS:
        with tempfile.TemporaryDirectory() as root, Ledger.open(f"sqlite:///{root}/ledger.db") as ledger:
            database, numbers, written = ledger._database, iter(itertools.count()), 0
            for count in _QUEUED:
                fill(database, queued(numbers, producers), count - written)
                written = count
                name = f"{count}_queued_of_{producers}"
                rows[f"take_{name}"] = informs(_median_ms(_take(ledger), after=partial(give_back, database)), "ms")
                rows[f"take_{name}_no_room"] = informs(_median_ms(_take(ledger, room=False)), "ms")
                rows[f"take_{name}_none_due"] = informs(_median_ms(_take(ledger, due=False)), "ms")
    for producers in _PRODUCERS:
        for kind in ("", "_no_room", "_none_due"):
            few, many = (
                max(rows[f"take_{count}_queued_of_{producers}{kind}"]["value"], _FLOOR_MS)
                for count in (_QUEUED[2], _QUEUED[-1])
            )
            linear = _QUEUED[-1] / _QUEUED[2] if kind == "_none_due" else 1
            rows[f"take_of_{producers}{kind}_growth"] = at_most(many / few, _NOISE * linear, "x")
    return rows


def _take(ledger: Ledger, *, room: bool = True, due: bool = True) -> Callable[[], object]:
    now = NOW + 10**6 if due else NOW - 10**6

    def take() -> object:
        return ledger.queue.take("w", lambda _: room, now, _TTL_S, 10)

    return take


def _median_ms(call: Callable[[], object], after: Callable[[], object] = lambda: None) -> float:
    """Return the median time of a call; `after`, which undoes it, is not timed."""
    return statistics.median([_seconds(call, after) for _ in range(1 + _ROUNDS)][1:]) * 1000


def _seconds(call: Callable[[], object], after: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    took = time.perf_counter() - began
    after()
    return took

"""Simulation of a fleet, event by event: turns arrive, wait, are taken by workers, run in slots of hosts, finish.

It follows the fleet's own rules. A turn's message reaches one of the workers, which takes what it can at once; so
does a worker that has freed a slot; every worker checks again once a second. A worker prefers the producer with
the fewest running turns, then the higher priority, then the older turn, and the least-loaded host.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.tools.capacity.arrivals import Turn
from tests.tools.capacity.slots import Slots


@dataclass(frozen=True, slots=True)
class Fleet:
    """Size and settings of a fleet."""

    hosts: int
    slots: int  # per host
    workers: int = 1
    room: int = 1_000  # turns that one worker follows at a time
    overhead_s: float = 0.1  # a slot is taken this much longer than its agent runs: start, bill, settling
    poll_s: float = 1.0  # between two checks of a worker

    @property
    def total(self) -> int:
        """Return how many turns can run at a time."""
        return min(self.hosts * self.slots, self.workers * self.room)


@dataclass(frozen=True, slots=True)
class Served:
    """A turn that has run."""

    turn: Turn
    host: int
    began: float  # seconds since the start, like `ended`
    ended: float  # when its slot was free again

    @property
    def wait_s(self) -> float:
        """Return the time in the queue."""
        return self.began - self.turn.at


def simulate(fleet: Fleet, turns: Iterable[Turn], seed: int = 0) -> Iterator[Served]:
    """Run turns given in order of time; yield them in the order in which they finish, until all have."""
    return _Run(fleet, seed).serve(turns)


class _Queue:
    """Waiting turns, by producer."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self._waiting: dict[str, list[tuple[int, float, int, Turn]]] = {}
        self._entered = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, turn: Turn) -> None:
        self._entered += 1
        entry = (-turn.priority, turn.at, self._entered, turn)
        heapq.heappush(self._waiting.setdefault(turn.producer, []), entry)

    def take(self) -> Turn:
        """Remove and return the next turn; there must be one."""
        producer = min(self._waiting, key=lambda name: (self.running[name], self._waiting[name][0]))
        waiting = self._waiting[producer]
        turn = heapq.heappop(waiting)[-1]
        if not waiting:
            del self._waiting[producer]
        self.running[producer] += 1
        return turn


class _Run:
    """State of a simulated fleet."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._rng = random.Random(seed)  # the randomness must be repeatable
        self._slots = Slots(fleet.hosts, fleet.slots)
        self._queue = _Queue()
        self._room = [fleet.room] * fleet.workers
        self._phase = [self._rng.uniform(0, fleet.poll_s) for _ in range(fleet.workers)]
        self._ends: list[tuple[float, int, int, Served]] = []  # when, in which order, by which worker
        self._started = 0

    def serve(self, turns: Iterable[Turn]) -> Iterator[Served]:
        arrivals = iter(turns)
        arriving = next(arrivals, None)
        poll_at, poller = math.inf, 0
        while arriving is not None or self._ends:
            end_at = self._ends[0][0] if self._ends else math.inf
            arrive_at = arriving.at if arriving is not None else math.inf
            now = min(end_at, arrive_at, poll_at)
            if now == end_at:  # first: its slot may be needed at the same moment
                yield self._end(now)
            elif now == arrive_at and arriving is not None:
                self._queue.put(arriving)
                self._take(self._rng.randrange(self._fleet.workers), now)
                arriving = next(arrivals, None)
            else:
                self._take(poller, now)
            poll_at, poller = self._next_poll(now)

    def _end(self, now: float) -> Served:
        _, _, worker, served = heapq.heappop(self._ends)
        self._slots.give(served.host)
        self._room[worker] += 1
        self._queue.running[served.turn.producer] -= 1
        self._take(worker, now)
        return served

    def _take(self, worker: int, now: float) -> None:
        """Take as many turns as the worker can."""
        while self._queue and self._slots.free and self._room[worker]:
            turn, host = self._queue.take(), self._slots.take()
            self._room[worker] -= 1
            self._started += 1
            served = Served(turn, host, now, now + self._fleet.overhead_s + turn.length_s)
            heapq.heappush(self._ends, (served.ended, self._started, worker, served))

    def _next_poll(self, now: float) -> tuple[float, int]:
        """Return when a worker's check will next find something, and which; skip checks that find nothing."""
        if not (self._queue and self._slots.free):
            return math.inf, 0
        period = self._fleet.poll_s
        looks = (
            (phase + period * (math.floor((now - phase) / period) + 1), worker)
            for worker, phase in enumerate(self._phase)
            if self._room[worker]
        )
        return min(looks, default=(math.inf, 0))

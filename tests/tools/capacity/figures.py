"""Figures of a simulated or measured run: waits, and how busy the slots were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.tools.capacity.simulation import Fleet, Served


@dataclass(frozen=True, slots=True)
class Waits:
    """Times in the queue, in seconds; NaN without turns."""

    turns: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float

    @classmethod
    def of(cls, waits: Iterable[float]) -> Waits:
        """Return the figures of these waits."""
        ordered = sorted(waits)
        mean = sum(ordered) / len(ordered) if ordered else math.nan
        return cls(len(ordered), mean, *(percentile(ordered, share) for share in (0.50, 0.95, 0.99)))


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a fleet between two moments."""

    waits: Waits  # of the turns that arrived between them
    by_producer: Mapping[str, Waits]
    utilisation: float  # share of slot-seconds in use
    per_s: float  # turns finished per second


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least that share of the values does not exceed; NaN if there is none."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else math.nan


def measure(served: Iterable[Served], fleet: Fleet, start: float, end: float) -> Figures:
    """Return the figures of a fleet between `start` and `end`, in seconds since the start."""
    waits: dict[str, list[float]] = {}
    busy_s, ended = 0.0, 0
    for each in served:
        busy_s += max(min(each.ended, end) - max(each.began, start), 0.0)
        ended += start <= each.ended < end
        if start <= each.turn.at < end:
            waits.setdefault(each.turn.producer, []).append(each.wait_s)
    return Figures(
        waits=Waits.of(wait for ours in waits.values() for wait in ours),
        by_producer={producer: Waits.of(ours) for producer, ours in sorted(waits.items())},
        utilisation=busy_s / (fleet.hosts * fleet.slots * (end - start)),
        per_s=ended / (end - start),
    )

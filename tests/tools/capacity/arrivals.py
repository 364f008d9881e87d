"""Turns that producers request, and when."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from tests.tools.capacity.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Turn:
    """A requested turn."""

    at: float  # seconds since the start
    length_s: float  # how long its agent runs
    producer: str = "default"
    priority: int = 0  # higher is sooner, among producers with equally many running turns


def poisson(
    per_s: float, lengths: Lengths, seconds: float, seed: int, *, producer: str = "default", priority: int = 0
) -> Iterator[Turn]:
    """Yield turns that arrive independently of one another, `per_s` per second on average."""
    rng = random.Random(f"{seed} {producer} {priority}")  # the randomness must be repeatable
    at = rng.expovariate(per_s)
    while at < seconds:
        yield Turn(at, lengths.draw(rng), producer, priority)
        at += rng.expovariate(per_s)


def burst(
    count: int, lengths: Lengths, seed: int, *, at: float = 0.0, producer: str = "default", priority: int = 0
) -> Iterator[Turn]:
    """Yield turns that arrive all at once."""
    rng = random.Random(f"{seed} {producer} {priority}")  # as above
    return (Turn(at, lengths.draw(rng), producer, priority) for _ in range(count))


def together(*streams: Iterator[Turn]) -> Iterator[Turn]:
    """Merge the turns of several producers, in order of time."""
    return heapq.merge(*streams, key=attrgetter("at"))

"""What producers ask for, and when."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from tests.tools.capacity.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that is asked for."""

    at: float  # seconds since the beginning
    length_s: float  # how long its agent runs
    producer: str = "default"
    priority: int = 0  # the higher, the sooner, among the turns of producers who have as many running


def poisson(
    per_s: float, lengths: Lengths, seconds: float, seed: int, *, producer: str = "default", priority: int = 0
) -> Iterator[Turn]:
    """Turns that come independently of one another, `per_s` a second in the mean."""
    rng = random.Random(f"{seed} {producer} {priority}")  # chance that can be repeated is wanted
    at = rng.expovariate(per_s)
    while at < seconds:
        yield Turn(at, lengths.draw(rng), producer, priority)
        at += rng.expovariate(per_s)


def burst(
    count: int, lengths: Lengths, seed: int, *, at: float = 0.0, producer: str = "default", priority: int = 0
) -> Iterator[Turn]:
    """Turns that come all at once."""
    rng = random.Random(f"{seed} {producer} {priority}")  # as above
    return (Turn(at, lengths.draw(rng), producer, priority) for _ in range(count))


def together(*streams: Iterator[Turn]) -> Iterator[Turn]:
    """Several producers at one fleet, in order of time."""
    return heapq.merge(*streams, key=attrgetter("at"))

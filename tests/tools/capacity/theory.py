"""What queueing theory says of the same fleet, to check the simulation against.

Exact for Poisson arrivals and exponential lengths (M/M/c, Erlang 1917); for other lengths (M/G/c) the
approximation of Lee and Longton (1959), which takes the mean wait of M/M/c times (1 + cv²) / 2.
"""

from __future__ import annotations

import math


def erlang_c(slots: int, load: float) -> float:
    """The share of turns that have to wait, at `load` busy slots in the mean. 1 if those are all or more."""
    if load >= slots:
        return 1.0
    blocked = 1.0  # Erlang B, by its recursion: no factorial, so any number of slots
    for count in range(1, slots + 1):
        blocked = load * blocked / (count + load * blocked)
    return slots * blocked / (slots - load * (1 - blocked))


def mean_wait_s(slots: int, per_s: float, mean_s: float, cv: float = 1.0) -> float:
    """In the queue, for turns that occupy a slot for `mean_s` in the mean; infinite if too many come."""
    load = per_s * mean_s
    if load >= slots:
        return math.inf
    return erlang_c(slots, load) * mean_s / (slots - load) * (1 + cv**2) / 2

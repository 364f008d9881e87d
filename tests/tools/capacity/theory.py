"""Predictions of queueing theory for the same fleet, to check the simulation against.

Exact for Poisson arrivals and exponential lengths (M/M/c, Erlang 1917); for other lengths (M/G/c) the
approximation of Lee and Longton (1959): the mean wait of M/M/c times (1 + cv²) / 2.
"""

from __future__ import annotations

import math


def erlang_c(slots: int, load: float) -> float:
    """Return the share of turns that must wait if `load` slots are busy on average; 1 if that is all or more."""
    if load >= slots:
        return 1.0
    blocked = 1.0  # Erlang B, by its recursion: no factorial, so any number of slots
    for count in range(1, slots + 1):
        blocked = load * blocked / (count + load * blocked)
    return slots * blocked / (slots - load * (1 - blocked))


def mean_wait_s(slots: int, per_s: float, mean_s: float, cv: float = 1.0) -> float:
    """Return the mean wait of turns that occupy a slot for `mean_s` on average; infinite if too many arrive."""
    load = per_s * mean_s
    if load >= slots:
        return math.inf
    return erlang_c(slots, load) * mean_s / (slots - load) * (1 + cv**2) / 2

"""Garbage collection for workers: rare, and never among objects that a worker keeps for good.

Reference counting frees nearly everything here. With a thousand running turns, a collection of the oldest
generation would scan everything they hold and stop every stream of the process for a third of a second.
"""

from __future__ import annotations

import gc

_YOUNG = 20_000  # new objects between collections of the youngest generation
_RARELY = 50  # of these between collections of the next, and of those between collections of the oldest


def collect_seldom() -> None:
    """Tune the collector; call once, when a worker has loaded everything and has no turns yet."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _RARELY, _RARELY)

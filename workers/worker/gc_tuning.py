"""When Python looks for garbage cycles: seldom, and not among what a worker keeps for good.

Nearly everything here is freed by its reference count. With a thousand turns at work, a collection of the oldest
generation would look at all that they hold, and stop every stream of the process for a third of a second.
"""

from __future__ import annotations

import gc

_YOUNG = 20_000  # new objects between two collections of the youngest generation
_RARELY = 50  # of these between two of the next one, and of those between two of the oldest


def collect_seldom() -> None:
    """To be called once, when a worker has loaded everything and has no turns yet."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _RARELY, _RARELY)

"""One blow, or injected fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Missed(Exception):
    """There was nothing to strike."""


@dataclass(frozen=True, slots=True)
class Blow:
    """An injected fault, and how to end it if it does not end by itself. `strike` may raise Missed."""

    name: str
    strike: Callable[[], object]
    lasts_s: float = 0.0
    mend: Callable[[], object] | None = None


Targets = list[list[Blow]]  # the blows against each

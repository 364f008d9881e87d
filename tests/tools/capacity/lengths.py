"""How long turns take: the distribution of their lengths."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Protocol


class Lengths(Protocol):
    """A distribution of positive numbers of seconds."""

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""

    @property
    def cv(self) -> float:
        """The coefficient of variation: standard deviation over mean."""

    def draw(self, rng: random.Random) -> float:
        """One length in seconds."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Many short ones and a few very long ones, as agents' turns are."""

    mean_s: float
    cv: float = 1.5

    def draw(self, rng: random.Random) -> float:
        """See `Lengths`."""
        variance = math.log(1 + self.cv**2)  # of the logarithm
        return rng.lognormvariate(math.log(self.mean_s) - variance / 2, math.sqrt(variance))

"""Distributions of turn lengths."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Protocol


class Lengths(Protocol):
    """A distribution of positive numbers of seconds."""

    @property
    def mean_s(self) -> float:
        """Return the mean in seconds."""

    @property
    def cv(self) -> float:
        """Return the coefficient of variation: standard deviation over mean."""

    def draw(self, rng: random.Random) -> float:
        """Draw a length in seconds."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Many short lengths and a few very long ones, like agents' turns."""

    mean_s: float
    cv: float = 1.5

    def draw(self, rng: random.Random) -> float:
        variance = math.log(1 + self.cv**2)  # of the logarithm
        return rng.lognormvariate(math.log(self.mean_s) - variance / 2, math.sqrt(variance))

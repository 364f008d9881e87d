"""Blows that set the clock of a worker's machine, and set it right again some time later."""

from __future__ import annotations

import random

from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.stage import Stage

_STEPS_S = (-7200.0, -60.0, 60.0, 7200.0)
_WRONG_S = (1.0, 15.0)


def on_clocks(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows that set clocks."""
    steps_s = rng.sample(_STEPS_S, len(_STEPS_S))
    return [
        _blow(stage, steps_s[n % len(steps_s)], random.Random(rng.random())) for n in range(stage.form.clock_blows)
    ]


def _blow(stage: Stage, step_s: float, choice: random.Random) -> Blow:
    return Blow(
        f"a worker's clock is {abs(step_s):.0f} s {'fast' if step_s > 0 else 'slow'}",
        lambda: stage.crew.set_clock(choice, step_s),
        choice.uniform(*_WRONG_S),
        stage.crew.right_clock,
    )

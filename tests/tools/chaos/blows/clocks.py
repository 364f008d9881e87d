"""Blows that set the clock of a worker's machine, and set it right again some time later."""

from __future__ import annotations

import random

from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.stage import Stage

_STEPS_S = (-7200.0, -60.0, 60.0, 7200.0)
_WRONG_S = (1.0, 15.0)


def on_clocks(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows that set clocks."""
    return [_blow(stage, random.Random(rng.random())) for _ in range(stage.form.clock_blows)]


def _blow(stage: Stage, choice: random.Random) -> Blow:
    step_s, lasts_s = choice.choice(_STEPS_S), choice.uniform(*_WRONG_S)
    return Blow(
        f"a worker's clock is {abs(step_s):.0f} s {'fast' if step_s > 0 else 'slow'}",
        lambda: stage.crew.set_clock(choice, step_s),
        lasts_s,
        stage.crew.right_clock,
    )

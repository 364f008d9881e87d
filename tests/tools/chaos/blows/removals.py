"""Blows that remove the spool of a running turn, as a tool or a cleanup job could.

The attempt is lost and the turn is retried. What its agent has cost may remain unbooked; its usage is then marked
as incomplete.
"""

from __future__ import annotations

import random

from tests.support.waiting import remove_spools
from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.blows.forgeries import MAY_LOSE_ATTEMPTS
from tests.tools.chaos.blows.running import Running, strike_one
from tests.tools.chaos.stage import Stage


def on_spools(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows that remove spools."""
    return [_blow(stage, random.Random(rng.random())) for _ in range(stage.form.removal_blows)]


def _blow(stage: Stage, choice: random.Random) -> Blow:
    def remove(each: Running) -> None:
        stage.struck.may_be_short.add(each.turn_id)
        stage.struck.removed.add(each.spool.name)
        remove_spools(each.spool)

    def strike() -> None:
        struck = strike_one(stage, choice, lambda each: each.kind in MAY_LOSE_ATTEMPTS, remove)
        stage.story.tell(f"{struck.spool} is removed")

    return Blow("a spool is removed", strike)

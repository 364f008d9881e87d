"""Blows against the workers, the broker and the ledger."""

from __future__ import annotations

import random

from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.stage import Stage

_BROKER_AWAY_S = (0.5, 8.0)
_BEYOND_CLAIM_S = 22.0


def on_workers(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows against the workers."""
    choice = random.Random(rng.random())  # of a worker, when the time has come; other targets are struck meanwhile
    kinds = [
        Blow("a worker is killed", lambda: stage.crew.kill(choice)),
        Blow("a worker gets SIGTERM", lambda: stage.crew.terminate(choice)),
    ]
    frozen = Blow("a worker is frozen", lambda: stage.crew.freeze(choice), _BEYOND_CLAIM_S, stage.crew.thaw)
    return [kinds[n % 2] for n in range(stage.form.worker_blows)] + [frozen] * stage.form.frozen_blows


def on_broker(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows against the broker."""
    broker = stage.broker
    kinds = [
        lambda: Blow("the broker is killed", broker.kill, rng.uniform(*_BROKER_AWAY_S), broker.start),
        lambda: Blow("the broker is stopped", broker.stop, rng.uniform(*_BROKER_AWAY_S), broker.start),
        lambda: Blow("connections to the broker are dropped", broker.drop_connections),
    ]
    return [kinds[n % 3]() for n in range(stage.form.broker_blows)]


def on_ledger(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows against the ledger."""
    database, away_s = stage.database, stage.form.ledger_away_s
    kinds = [
        Blow("the ledger is killed", database.kill, away_s, database.start),
        Blow("the ledger is stopped", database.stop, away_s, database.start),
        Blow("the ledger is frozen", database.freeze, away_s, database.thaw),
    ]
    return rng.sample(kinds, len(kinds))[: stage.form.ledger_blows]

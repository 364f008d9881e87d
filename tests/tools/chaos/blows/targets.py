"""Which blows fall in a storm, by target."""

from __future__ import annotations

import random

from tests.tools.chaos.blows import hosts, services
from tests.tools.chaos.blows.blow import Blow, Targets
from tests.tools.chaos.stage import Stage


def everything(stage: Stage, rng: random.Random) -> Targets:
    """Return all kinds of blows, as many of each as the form says."""
    return [
        services.on_workers(stage, rng),
        services.on_broker(stage, rng),
        services.on_ledger(stage, rng),
        *(hosts.on_link(number, link, stage.form, rng) for number, link in enumerate(stage.links)),
        *(hosts.on_host(host.name, host.sshd, stage.form, rng) for host in stage.hosts),
    ]


def outages(stage: Stage, _: random.Random) -> Targets:
    """Return blows that stop the broker, the ledger, and both, one after another, for as long as the form says."""
    away_s, broker, database = stage.form.ledger_away_s, stage.broker, stage.database

    def stop_both() -> None:
        broker.stop()
        database.stop()

    def start_both() -> None:
        broker.start()
        database.start()

    return [
        [
            Blow("the broker is stopped", broker.stop, away_s, broker.start),
            Blow("the ledger is stopped", database.stop, away_s, database.start),
            Blow("the broker and the ledger are stopped", stop_both, away_s, start_both),
        ]
    ]

"""Which blows fall in a storm, by target."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from tests.tools.chaos.blows import clocks, disks, forgeries, hosts, removals, services, stops
from tests.tools.chaos.blows.blow import Blow, Targets
from tests.tools.chaos.stage import Stage

ChooseTargets = Callable[[Stage, random.Random], Targets]


def _links(stage: Stage, rng: random.Random) -> Targets:
    return [hosts.on_link(number, link, stage.form, rng) for number, link in enumerate(stage.links)]


def _hosts(stage: Stage, rng: random.Random) -> Targets:
    return [hosts.on_host(host.name, host.sshd, stage.form, rng) for host in stage.hosts]


KINDS: Mapping[str, ChooseTargets] = {
    "workers": lambda stage, rng: [services.on_workers(stage, rng)],
    "broker": lambda stage, rng: [services.on_broker(stage, rng)],
    "ledger": lambda stage, rng: [services.on_ledger(stage, rng)],
    "links": _links,
    "hosts": _hosts,
    "stops": lambda stage, rng: [stops.on_processes(stage, rng)],
    "forgeries": lambda stage, rng: [forgeries.on_spools(stage, rng)],
    "removals": lambda stage, rng: [removals.on_spools(stage, rng)],
    "disks": lambda stage, rng: [disks.on_disk(stage)],
    "clocks": lambda stage, rng: [clocks.on_clocks(stage, rng)],
}


def only(kinds: Sequence[str]) -> ChooseTargets:
    """Return the choice of these kinds of blows, as many of each as the form says."""
    return lambda stage, rng: [target for kind in kinds for target in KINDS[kind](stage, rng)]


everything = only(tuple(KINDS))


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

"""The blows, or injected faults: at seeded moments, one at a time for each target."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.support.ssh.links import Link
from tests.support.ssh.sshd import Sshd
from tests.tools.chaos.form import Form
from tests.tools.chaos.stage import Stage
from tests.tools.chaos.timeline import Timeline

_SHORT_CUT_S = (1.0, 12.0)
_BROKER_AWAY_S = (0.5, 8.0)
_HOST_AWAY_S = (0.5, 4.0)
_BEYOND_LEASE_S = 15.0
_BEYOND_CLAIM_S = 22.0


@dataclass(frozen=True, slots=True)
class Blow:
    """An injected fault, and how to end it if it does not end by itself."""

    name: str
    strike: Callable[[], object]
    lasts_s: float = 0.0
    mend: Callable[[], object] | None = None


Targets = list[list[Blow]]  # the blows against each


class Storm:
    """A seeded schedule: the same seed strikes the same targets at the same moments.

    Each target has its own thread: a broker that takes seconds to start does not delay the repair of a link.
    """

    def __init__(self, stage: Stage, targets: Targets, rng: random.Random) -> None:
        self._story = stage.story
        self._rng = rng
        self._timelines = [self._spread(blows, stage.form.calm_s, stage.form.storm_s) for blows in targets]
        self.log: list[str] = []  # the names of all blows, as they fell

    def rage(self) -> None:
        """Run all blows, up to the last repair."""
        with ThreadPoolExecutor(len(self._timelines), "storm") as pool:
            for raging in [pool.submit(timeline.play) for timeline in self._timelines]:
                raging.result()

    def _spread(self, blows: list[Blow], from_s: float, storm_s: float) -> Timeline:
        """Place each blow at random in a separate part of the storm; parts are as long as their blows need."""
        timeline = Timeline()
        self._rng.shuffle(blows)
        free_s = max(storm_s - sum(blow.lasts_s for blow in blows), 0.0) / max(len(blows), 1)
        for blow in blows:
            at_s = from_s + self._rng.uniform(0.0, free_s * 0.9)
            timeline.at(at_s, self._struck(blow))
            if blow.mend is not None:
                timeline.at(at_s + blow.lasts_s, self._mended(blow.name, blow.mend))
            from_s += free_s + blow.lasts_s
        return timeline

    def _struck(self, blow: Blow) -> Callable[[], None]:
        def strike() -> None:
            self.log.append(blow.name)
            self._story.tell(f"{blow.name}, for {blow.lasts_s:.1f} s" if blow.lasts_s else blow.name)
            blow.strike()

        return strike

    def _mended(self, name: str, deed: Callable[[], object]) -> Callable[[], None]:
        def mend() -> None:
            deed()
            self._story.tell(f"{name}: over")

        return mend


def everything(stage: Stage, rng: random.Random) -> Targets:
    """Return all kinds of blows, as many of each as the form says."""
    return [
        _workers(stage, rng),
        _broker(stage, rng),
        _ledger(stage, rng),
        *(_link(number, link, stage.form, rng) for number, link in enumerate(stage.links)),
        *(_host(host.name, host.sshd, stage.form, rng) for host in stage.hosts),
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


def _workers(stage: Stage, rng: random.Random) -> list[Blow]:
    choice = random.Random(rng.random())  # of a worker, when the time has come; other targets are struck meanwhile
    kinds = [
        Blow("a worker is killed", lambda: stage.crew.kill(choice)),
        Blow("a worker gets SIGTERM", lambda: stage.crew.terminate(choice)),
    ]
    frozen = Blow("a worker is frozen", lambda: stage.crew.freeze(choice), _BEYOND_CLAIM_S, stage.crew.thaw)
    return [kinds[n % 2] for n in range(stage.form.worker_blows)] + [frozen] * stage.form.frozen_blows


def _broker(stage: Stage, rng: random.Random) -> list[Blow]:
    broker = stage.broker
    kinds = [
        lambda: Blow("the broker is killed", broker.kill, rng.uniform(*_BROKER_AWAY_S), broker.start),
        lambda: Blow("the broker is stopped", broker.stop, rng.uniform(*_BROKER_AWAY_S), broker.start),
        lambda: Blow("connections to the broker are dropped", broker.drop_connections),
    ]
    return [kinds[n % 3]() for n in range(stage.form.broker_blows)]


def _ledger(stage: Stage, rng: random.Random) -> list[Blow]:
    database, away_s = stage.database, stage.form.ledger_away_s
    kinds = [
        Blow("the ledger is killed", database.kill, away_s, database.start),
        Blow("the ledger is stopped", database.stop, away_s, database.start),
        Blow("the ledger is frozen", database.freeze, away_s, database.thaw),
    ]
    return rng.sample(kinds, len(kinds))[: stage.form.ledger_blows]


def _link(number: int, link: Link, form: Form, rng: random.Random) -> list[Blow]:
    cuts_s = [rng.uniform(*_SHORT_CUT_S) for _ in range(form.link_blows)]
    if form.long_cuts:
        cuts_s[0] = form.lease_s + _BEYOND_LEASE_S
    return [Blow(f"the link to h{number + 2} is cut", link.cut, cut_s, link.mend) for cut_s in cuts_s]


def _host(name: str, sshd: Sshd, form: Form, rng: random.Random) -> list[Blow]:
    kinds = [
        lambda: Blow(f"the sessions of {name}'s sshd are killed", sshd.kill_sessions),
        lambda: Blow(f"{name}'s sshd is stopped", sshd.stop, rng.uniform(*_HOST_AWAY_S), sshd.start),
    ]
    return [kinds[n % 2]() for n in range(form.host_blows)]

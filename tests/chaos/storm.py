"""The blows: each kind has its number, and each target is struck at seeded moments, by one blow at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.stage import Stage
from tests.chaos.timeline import Timeline
from tests.ssh.links import Link
from tests.ssh.sshd import Sshd

_SHORT_CUT_S = (1.0, 12.0)
_BROKER_AWAY_S = (0.5, 8.0)
_HOST_AWAY_S = (0.5, 4.0)
_BEYOND_LEASE_S = 15.0


@dataclass(frozen=True, slots=True)
class Blow:
    """What happens, and what ends it, if it does not end by itself."""

    name: str
    strike: Callable[[], object]
    lasts_s: float = 0.0
    mend: Callable[[], object] | None = None


class Storm:
    """Seeded: the same seed strikes the same targets at the same moments."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self._timeline = Timeline()
        self.log: list[str] = []  # the names of all blows, as they fell
        form = stage.form
        targets = [
            self._workers(),
            self._broker(),
            self._ledger(),
            *(self._link(number, link) for number, link in enumerate(stage.links)),
            *(self._host(host.name, host.sshd) for host in stage.hosts),
        ]
        for blows in targets:
            rng.shuffle(blows)
            self._spread(blows, form.calm_s, form.storm_s)

    def rage(self) -> None:
        """All of it, up to the last thing that is mended."""
        self._timeline.play()

    def _spread(self, blows: list[Blow], from_s: float, storm_s: float) -> None:
        """Each somewhere in a part of the storm of its own; the parts are as long as the blows need."""
        free_s = max(storm_s - sum(blow.lasts_s for blow in blows), 0.0) / max(len(blows), 1)
        for blow in blows:
            at_s = from_s + self._rng.uniform(0.0, free_s * 0.9)
            self._timeline.at(at_s, self._noted(blow.name, blow.lasts_s, blow.strike))
            if blow.mend is not None:
                self._timeline.at(at_s + blow.lasts_s, self._mended(blow.name, blow.mend))
            from_s += free_s + blow.lasts_s

    def _noted(self, name: str, lasts_s: float, deed: Callable[[], object]) -> Callable[[], None]:
        def strike() -> None:
            self.log.append(name)
            self._stage.story.tell(f"{name}, for {lasts_s:.1f} s" if lasts_s else name)
            deed()

        return strike

    def _mended(self, name: str, deed: Callable[[], object]) -> Callable[[], None]:
        def mend() -> None:
            deed()
            self._stage.story.tell(f"{name}: that is over")

        return mend

    def _workers(self) -> list[Blow]:
        crew, rng = self._stage.crew, self._rng
        kinds = [
            Blow("a worker is killed", lambda: crew.kill(rng)),
            Blow("a worker gets SIGTERM", lambda: crew.terminate(rng)),
        ]
        return [kinds[n % 2] for n in range(self._stage.form.worker_blows)]

    def _broker(self) -> list[Blow]:
        broker = self._stage.broker
        kinds = [
            lambda: Blow("the broker is killed", broker.kill, self._between(_BROKER_AWAY_S), broker.start),
            lambda: Blow("the broker is stopped", broker.stop, self._between(_BROKER_AWAY_S), broker.start),
            lambda: Blow("connections to the broker are dropped", broker.drop_connections),
        ]
        return [kinds[n % 3]() for n in range(self._stage.form.broker_blows)]

    def _ledger(self) -> list[Blow]:
        database, away_s = self._stage.database, self._stage.form.ledger_away_s
        kinds = [
            Blow("the ledger is killed", database.kill, away_s, database.start),
            Blow("the ledger is stopped", database.stop, away_s, database.start),
            Blow("the ledger falls silent", database.freeze, away_s, database.thaw),
        ]
        return self._rng.sample(kinds, len(kinds))[: self._stage.form.ledger_blows]

    def _link(self, number: int, link: Link) -> list[Blow]:
        form, name = self._stage.form, f"the link to h{number + 2} is cut"
        cuts_s = [self._between(_SHORT_CUT_S) for _ in range(form.link_blows)]
        if form.long_cuts:
            cuts_s[0] = form.lease_s + _BEYOND_LEASE_S
        return [Blow(name, link.cut, cut_s, link.mend) for cut_s in cuts_s]

    def _host(self, name: str, sshd: Sshd) -> list[Blow]:
        kinds = [
            lambda: Blow(f"the sessions of {name}'s sshd are killed", sshd.kill_sessions),
            lambda: Blow(f"{name}'s sshd is stopped", sshd.stop, self._between(_HOST_AWAY_S), sshd.start),
        ]
        return [kinds[n % 2]() for n in range(self._stage.form.host_blows)]

    def _between(self, limits: tuple[float, float]) -> float:
        return self._rng.uniform(*limits)

"""The storm: blows at seeded moments, one at a time for each target."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.tools.chaos.blows.blow import Blow, Missed, Targets
from tests.tools.chaos.stage import Stage
from tests.tools.chaos.timeline import Timeline


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
            self._story.tell(f"{blow.name}, for {blow.lasts_s:.1f} s" if blow.lasts_s else blow.name)
            try:
                blow.strike()
            except Missed:
                self._story.tell(f"{blow.name}: there is no turn to strike")
                return
            self.log.append(blow.name)

        return strike

    def _mended(self, name: str, deed: Callable[[], object]) -> Callable[[], None]:
        def mend() -> None:
            deed()
            self._story.tell(f"{name}: over")

        return mend

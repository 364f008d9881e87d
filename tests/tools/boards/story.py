"""Three minutes of a fleet, for the pictures: busy and quiet periods, and faults in between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ops.ledger import BudgetKey, Period
from tests.tools.boards.stage import Stage
from tests.tools.boards.turns import MODELS, UNKNOWN

LENGTH_S = 180.0
SETTINGS = {
    "agent__max_concurrent_agents": "6",
    "agent__max_attempts": "4",
    "agent__retry_backoff_ms": "9000",
    "ssh__connect_timeout_ms": "5000",
}
_BUDGETS = (
    (BudgetKey("team", "web", Period.DAY), 8.0, 0.5),
    (BudgetKey("team", "mobile", Period.WEEK), 20.0, 0.5),
    (BudgetKey("team", "docs", Period.DAY), 1.6, 0.2),
    (BudgetKey("project", "migration", Period.TOTAL), 25.0, 0.5),
)
# Turns a second, from this second on.
_RUSH = ((0, 0.45), (55, 1.1), (80, 0.5), (160, 0.7))


@dataclass(slots=True)
class Story:
    """Schedule of events on a stage."""

    stage: Stage
    chance: random.Random
    _next_turn: float = 0.0
    _events: list[tuple[float, Callable[[], Any]]] = field(default_factory=list)

    def play(self) -> None:
        """Run the schedule on a started stage."""
        stage, first = self.stage, self.stage.hosts[1].sshd
        for key, limit, reserve in _BUDGETS:
            stage.fleet.ledger.budgets.put(key, limit, reserve, time.time())
        self._events = [
            (12.0, stage.queue_rubbish),
            (20.0, lambda: stage.queue(stage.cast.silent(95))),
            (150.0, lambda: stage.queue(stage.cast.silent(95))),
            (30.0, lambda: stage.queue_later(stage.cast.completed(MODELS[0]), 3600)),
            (31.0, lambda: stage.queue_later(stage.cast.completed(MODELS[0]), 3600)),
            (70.0, stage.workers[1].kill),
            (74.0, lambda: stage.start_worker(1)),
            (110.0, first.stop),
            (132.0, first.start),
            (140.0, stage.queue_rubbish),
            *((at, self._overloaded) for at in (38.0, 41.0, 44.0, 48.0, 95.0)),
        ]
        start = time.monotonic()
        while (at := time.monotonic() - start) < LENGTH_S:
            self._happen(at)
            time.sleep(0.1)

    def _happen(self, at: float) -> None:
        while self._events and min(self._events, key=lambda event: event[0])[0] <= at:
            event = min(self._events, key=lambda event: event[0])
            self._events.remove(event)
            event[1]()
        if at >= self._next_turn:
            rate = next(rate for since, rate in reversed(_RUSH) if since <= at)
            self._next_turn = at + self.chance.expovariate(rate)
            self._turn()

    def _turn(self) -> None:
        stage, cast = self.stage, self.stage.cast
        labels = {"team": self.chance.choice(("web", "web", "web", "mobile", "mobile", "docs"))}
        if self.chance.random() < 0.25:
            labels["project"] = "migration"
        where = {"host": "local"} if self.chance.random() < 0.25 else {}
        dice = self.chance.random()
        if dice < 0.05:
            turn = cast.replayed(self.chance.choice(("e2_api_400_credit", "f_max_turns")), exit_code=1)
        elif dice < 0.15:
            turn = cast.completed(MODELS[0], retries=self.chance.randint(1, 4))
        else:
            (model,) = self.chance.choices((*MODELS, UNKNOWN), (10, 5, 3, 1))
            turn = cast.completed(model)
        turn_id = stage.queue(turn, labels=labels, **where)
        if dice > 0.97:
            self._events.append((self._next_turn + 4, lambda: stage.fleet.client.cancel(turn_id)))
        if dice > 0.985:  # a producer that does not know whether it has sent it
            request = stage.request(turn, labels=labels, turn_id=turn_id, **where)
            self._events.append((self._next_turn + 1, lambda: stage.fleet.client.enqueue(request)))

    def _overloaded(self) -> None:
        self.stage.queue(self.stage.cast.replayed("h5_529_forever", exit_code=1), labels={"team": "web"})

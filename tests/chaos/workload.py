"""What is asked of the fleet: which turns, of which lengths, when and how often they are sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from adapters.request import TurnRequest
from tests.chaos.form import Form
from tests.chaos.player import Act, Players
from tests.model_api import Reply, Script, Text, Usage, replies

SONNET = "claude-sonnet-4-5"
_RECORDINGS = ("a_parallel_tools", "b_agentic_steps", "c_subagent")
_SPARE_REPLIES = 4  # for an agent that was ended while an answer was under way
_SHORTEST_S = 2.0


class Kind(StrEnum):
    """What becomes of a turn if nothing disturbs it."""

    PLAIN = "plain"  # completes
    FAILING = "failing"  # fails for good
    RETRIED = "retried"  # its first attempt fails, the second one completes
    BROKEN = "broken"  # its first agent breaks off without a word, the second one completes
    CANCELLED = "cancelled"  # somebody cancels it; it may be over by then
    REAL = "real"  # completes; the real Claude Code


class Way(StrEnum):
    """How a turn is sent."""

    CLIENT = "client"
    NAME = "name"  # as a plain Celery task


@dataclass(frozen=True, slots=True)
class Sending:
    """One message, or one call of the client."""

    at_s: float
    way: Way
    task_id: str


@dataclass(slots=True)
class Turn:
    """One turn, and all that its producers do with it."""

    request: TurnRequest
    kind: Kind
    sendings: list[Sending]
    cancel_at_s: float | None = None
    late: list[Sending] = field(default_factory=list)  # after it is settled

    @property
    def id(self) -> str:
        """Its id."""
        return self.request.turn_id


def scripts(form: Form) -> Iterator[Script]:
    """What the model says to the real ones. All usages differ, so that no sum is right by accident."""
    for n in range(form.real):
        pause_s = 2 + n % 5 if form.longest_s < 30 else 3 + 5 * (n % 3)
        working = [
            Reply((replies.bash(f"sleep {pause_s}"),), Usage(100 + n, 20 + n, 30 + n, 4 + n)),
            Reply((replies.bash(f"sleep {pause_s}"),), Usage(200 + n, 30 + n, 40 + n, 5 + n)),
        ]
        done = [Reply((Text("done"),), Usage(300 + n + k, 40 + n, 50 + n, 6 + n)) for k in range(_SPARE_REPLIES)]
        yield Script(f"real-{n}", (*working, *done))


class Workload:
    """All turns of a performance."""

    def __init__(self, form: Form, rng: random.Random, players: Players, workspace: str, hosts: list[str]) -> None:
        self._form = form
        self._rng = rng
        self._players = players
        self._workspace = workspace
        self._hosts = hosts
        self.turns = [self._scripted(n) for n in range(form.turns)] + [self._real(n) for n in range(form.real)]

    def _scripted(self, number: int) -> Turn:
        kind = self._rng.choices(list(Kind)[:5], (78, 8, 6, 4, 4))[0] if number > 5 else list(Kind)[number % 5]
        name = f"{kind}-{number}"
        request = self._request(
            name,
            agent="scripted",
            options=self._players.play(name, *self._acts(kind)),
            host=self._rng.choice([*self._hosts, None]),
        )
        turn = Turn(request, kind, self._sendings(name, number))
        if kind is Kind.CANCELLED:
            turn.cancel_at_s = turn.sendings[0].at_s + self._rng.uniform(0.0, self._form.longest_s)
        return turn

    def _acts(self, kind: Kind) -> list[Act]:
        recording = self._rng.choice(_RECORDINGS)
        length_s = self._rng.uniform(_SHORTEST_S, self._form.longest_s)
        match kind:
            case Kind.FAILING:
                return [Act("f_max_turns", length_s, fails=True)]
            case Kind.RETRIED:
                return [Act("h5_529_forever", _SHORTEST_S, fails=True), Act(recording, length_s)]
            case Kind.BROKEN:
                return [Act(recording, length_s / 2, has_report=False, fails=True), Act(recording, length_s)]
            case _:
                return [Act(recording, length_s)]

    def _real(self, number: int) -> Turn:
        name = f"{Kind.REAL}-{number}"
        # The model API is on the loopback device: hosts behind a link do not reach it.
        host = self._rng.choice(["local", self._hosts[0]])
        request = self._request(name, host=host, options={"model": SONNET})
        return Turn(request, Kind.REAL, self._sendings(name, number))

    def _request(self, turn_id: str, **fields: Any) -> TurnRequest:
        document = {"turn_id": turn_id, "prompt": f"do it [script:{turn_id}]", "workspace": self._workspace}
        return TurnRequest.parse(document | fields)

    def _sendings(self, turn_id: str, number: int) -> list[Sending]:
        """A third is there when the storm begins. Every fourth turn is sent again, some of them late."""
        form, rng = self._form, self._rng
        latest_s = form.calm_s + form.storm_s * 0.9
        first_s = rng.uniform(0.0, form.calm_s) if number % 3 == 0 else rng.uniform(form.calm_s, latest_s)
        sendings = [Sending(first_s, rng.choice(list(Way)), turn_id)]
        for again in range(rng.choice((0, 0, 0, rng.randint(1, 4)))):
            way = rng.choice(list(Way))
            task_id = turn_id if way is Way.CLIENT or again % 2 else f"{turn_id}-again-{again}"
            sendings.append(Sending(min(first_s + rng.expovariate(1 / form.longest_s), latest_s), way, task_id))
        return sendings

    def late(self) -> Iterator[tuple[Turn, Sending]]:
        """What is sent when all is over: half of it under other task ids."""
        for turn in self._rng.sample(self.turns, max(4, len(self.turns) // 20)):
            yield turn, Sending(0.0, Way.CLIENT, turn.id)
            yield turn, Sending(0.0, Way.NAME, f"{turn.id}-late")

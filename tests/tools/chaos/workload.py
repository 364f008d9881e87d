"""The workload: which turns, how long, and when and how often they are sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from adapters.isolation import Isolation
from adapters.protocol.request import TurnRequest
from adapters.protocol.session_request import SessionRequest
from ops.ledger import Ledger
from tests.tools.chaos.agents import CLAUDE, CODEX, GEMINI, MODELS, SDK, session_agent
from tests.tools.chaos.form import Form
from tests.tools.chaos.player import Act, Players

_RECORDINGS = ("a_parallel_tools", "b_agentic_steps", "c_subagent")
_STEPS = 3  # until a session of turns is done
_SHORTEST_S = 2.0
_CHORDS = 2
_LEVELS = (None, Isolation.NAMESPACE, Isolation.SANDBOX)
_STALL_MS = 15_000  # longer than any of these agents is silent otherwise


class Kind(StrEnum):
    """Outcome of a turn that nothing disturbs."""

    PLAIN = "plain"  # completes
    FAILING = "failing"  # fails for good
    RETRIED = "retried"  # its first attempt fails, the second one completes
    BROKEN = "broken"  # its first agent breaks off without a word, the second one completes
    CANCELLED = "cancelled"  # somebody cancels it; it may be over by then
    REAL = "real"  # completes; the real Claude Code
    LIVE = "live"  # the same through its SDK: it asks for every tool, and is spoken to
    CODEX = "codex"  # the real Codex
    GEMINI = "gemini"  # the real Gemini CLI
    BROUGHT = "brought"  # completes in a workspace of its own, and brings home what it has made
    FLOODING = "flooding"  # completes, after an agent that prints nothing but short lines for a while
    STUCK = "stuck"  # its first agent stops itself until a limit ends it, the second one completes


class Way(StrEnum):
    """How a turn is sent."""

    CLIENT = "client"
    NAME = "name"  # as a plain Celery task


AGENTS = {Kind.REAL: CLAUDE, Kind.LIVE: SDK, Kind.CODEX: CODEX, Kind.GEMINI: GEMINI}  # that are real


@dataclass(frozen=True, slots=True)
class Sending:
    """One message, or one call of the client."""

    at_s: float
    way: Way
    task_id: str


@dataclass(slots=True)
class Turn:
    """A turn, and everything that its producers do with it."""

    request: TurnRequest
    kind: Kind
    sendings: list[Sending]
    cancel_at_s: float | None = None
    then: Turn | None = None  # the next one of its chain, which nobody else sends
    late: list[Sending] = field(default_factory=list)  # after it is settled

    @property
    def id(self) -> str:
        """Its id."""
        return self.request.turn_id


@dataclass(slots=True)
class Run:
    """A session of turns."""

    request: SessionRequest
    sendings: list[Sending]

    cancel_at_s: None = None  # none is cancelled

    @property
    def id(self) -> str:
        """Its id."""
        return self.request.run_id

    def turns(self, ledger: Ledger) -> list[Turn]:
        """Return its turns, once it has finished."""
        session = ledger.session_runs.find(self.id)
        ids = session.result.turns if session and session.result else ()
        return [Turn(self.request.turn.model_copy(update={"turn_id": each}), Kind.REAL, []) for each in ids]


def settled(ledger: Ledger, asked: Turn | Run) -> bool:
    """Return True if it has its result."""
    if isinstance(asked, Turn):
        return ledger.reports.result(asked.id) is not None
    session = ledger.session_runs.find(asked.id)
    return session is not None and session.result is not None


def _can_be_chained(turn: Turn) -> bool:
    """Return True if the turn completes and is sent once, by name."""
    return turn.kind is Kind.PLAIN and [each.way for each in turn.sendings] == [Way.NAME]


class Workload:
    """All turns of a run."""

    def __init__(self, form: Form, rng: random.Random, players: Players, root: Path, hosts: list[str]) -> None:
        self._form = form
        self._rng = rng
        self._players = players
        self._root = root
        self._hosts = hosts
        self.turns = [self._scripted(n) for n in range(form.turns)]
        self.turns += [self._real(Kind.REAL, n) for n in range(form.real)]
        others = range(form.others)
        self.turns += [self._real(kind, n) for kind in (Kind.LIVE, Kind.CODEX, Kind.GEMINI) for n in others]
        self.turns += [self._brought(n) for n in others]
        self.turns += [self._odd(kind, n) for kind in (Kind.FLOODING, Kind.STUCK) for n in range(form.odd)]
        self.runs = [self._run(n) for n in others]
        self.turns += [self._then(n, turn) for n, turn in enumerate(filter(_can_be_chained, self.turns))]
        self.chords = [(self._part(n, "left"), self._part(n, "right")) for n in range(_CHORDS)]
        self.turns += [part for parts in self.chords for part in parts]

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

    def _odd(self, kind: Kind, number: int) -> Turn:
        name = f"{kind}-{number}"
        # The last host's disk may be full, and no room is set aside for a flood.
        places = self._hosts[:-1] if kind is Kind.FLOODING else [*self._hosts, None]
        limits = {"stall_timeout_ms": _STALL_MS, "max_paid_retries": 20} if kind is Kind.STUCK else {}
        request = self._request(
            name,
            agent="scripted",
            options=self._players.play(name, *self._acts(kind)),
            host=self._rng.choice(places),
            **limits,
        )
        return Turn(request, kind, self._sendings(name, number))

    def _then(self, number: int, first: Turn) -> Turn:
        """Return the second turn of a chain."""
        first.then = self._part(number, "then")
        return first.then

    def _part(self, number: int, name: str) -> Turn:
        """Return a turn that is sent as part of a canvas."""
        turn_id = f"{name}-{number}"
        play = self._players.play(turn_id, *self._acts(Kind.PLAIN))
        request = self._request(
            turn_id, agent="scripted", options=play, host=self._rng.choice([*self._hosts, None])
        )
        return Turn(request, Kind.PLAIN, [])

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
            case Kind.FLOODING:
                return [Act(recording, length_s, floods=self._form.flood_lines)]
            case Kind.STUCK:
                return [Act(recording, _SHORTEST_S, has_report=False, stops=True), Act(recording, _SHORTEST_S)]
            case _:
                return [Act(recording, length_s)]

    def _real(self, kind: Kind, number: int) -> Turn:
        name = f"{kind}-{number}"
        request = self._request(name, **self._by(AGENTS[kind]))
        return Turn(request, kind, self._sendings(name, number))

    def _by(self, agent: str) -> dict[str, Any]:
        options: dict[str, Any] = {"model": MODELS[agent]}
        if agent == CODEX:
            options["sandbox"] = "danger-full-access"
        if agent == SDK:
            options["permissions"] = {"ask": True, "ask_timeout_ms": 600_000}
        # The model APIs are on the loopback device: hosts behind a link do not reach them.
        return {"agent": agent, "options": options, "host": self._rng.choice(["local", self._hosts[0]])}

    def _brought(self, number: int) -> Turn:
        """Return a turn with a workspace from a git repository shared by all hosts, or from uploaded files."""
        name = f"{Kind.BROUGHT}-{number}"
        play = self._players.play(name, *self._acts(Kind.BROUGHT), makes=True)
        brings: dict[str, Any] = {"worktree": {"repository": str(self._root / "repository")}}
        if number % 2:
            brings = {"mounts": [{"host_path": str(self._root / "mounted"), "mount_path": "files"}]}
        place = self._rng.choice([*self._hosts, None])
        wanted = {"collect": {"patch": True, "files": ["made"]}, "workspace": None, "host": place}
        request = self._request(name, agent="scripted", options=play, **brings, **wanted)
        return Turn(request, Kind.BROUGHT, self._sendings(name, number))

    def _run(self, number: int) -> Run:
        name, agent = f"session-{number}", session_agent(number)
        workspace = self._root / name
        workspace.mkdir()
        fields = self._by(agent)
        if agent == SDK:  # nobody is there to be asked
            fields["options"].pop("permissions")
        document = {
            "run_id": name,
            "turn": {
                "prompt": f"do it [script:{name}]",
                "workspace": str(workspace),
                **_given(isolation=self._rng.choice(_LEVELS), **fields),
            },
            "test_commands": [f'test "$(wc -l <steps)" -ge {_STEPS}'],
            "max_turns": 10,
        }
        return Run(SessionRequest.parse(document), self._sendings(name, number))

    def _request(self, turn_id: str, **fields: Any) -> TurnRequest:
        workspace = str(self._root / "workspace")
        document = {"turn_id": turn_id, "prompt": f"do it [script:{turn_id}]", "workspace": workspace}
        return TurnRequest.parse(_given(**{"isolation": self._rng.choice(_LEVELS), **document, **fields}))

    def _sendings(self, turn_id: str, number: int) -> list[Sending]:
        """Return the sendings: a third before the storm; every fourth turn is sent again, some of them late."""
        form, rng = self._form, self._rng
        latest_s = form.calm_s + form.storm_s * 0.9
        first_s = rng.uniform(0.0, form.calm_s) if number % 3 == 0 else rng.uniform(form.calm_s, latest_s)
        sendings = [Sending(first_s, rng.choice(list(Way)), turn_id)]
        for again in range(rng.choice((0, 0, 0, rng.randint(1, 4)))):
            way = rng.choice(list(Way))
            task_id = turn_id if way is Way.CLIENT or again % 2 else f"{turn_id}-again-{again}"
            sendings.append(Sending(min(first_s + rng.expovariate(1 / form.longest_s), latest_s), way, task_id))
        return sendings

    def late(self) -> Iterator[tuple[Turn | Run, Sending]]:
        """Yield what to send after everything has finished, half of it under other task ids."""
        for turn in self._rng.sample(self.turns, max(4, len(self.turns) // 20)):
            yield turn, Sending(0.0, Way.CLIENT, turn.id)
            yield turn, Sending(0.0, Way.NAME, f"{turn.id}-late")
        for run in self.runs:
            yield run, Sending(0.0, Way.NAME, f"{run.id}-late")


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}

"""Four turns at each login that can be stopped in the middle, and what has to come of them whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.protocol.result import Status
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.places import RECORDINGS
from tests.support.ssh.links import Link
from tests.support.ssh.ssh_logins import Login, Play, logins, ssh_fleet
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until

PLAYS = {
    "brief": RECORDINGS / "a_parallel_tools.jsonl",
    "streamed": RECORDINGS / "m_partial_messages.jsonl",
    "large": RECORDINGS / "q2_big_read.jsonl",  # half a megabyte, most of it in one line
    "over": RECORDINGS / "b_agentic_steps.jsonl",  # comes to its end while nobody is there
}

# When, where, and what the worker has timed: it times nothing that it was not there for.
_BY_CHANCE = ("at", "host", "duration_ms", "api_duration_ms")


@dataclass(frozen=True, slots=True)
class Turn:
    """One of the turns."""

    id: str
    name: str  # of its play
    play: Play
    login: Login

    @property
    def unseen_acts(self) -> int:
        """How many acts it has played when somebody looks again."""
        return 3 if self.name == "over" else 2

    @property
    def has_gone_on(self) -> bool:
        """Whether it has printed all of these."""
        return self.login.printed(f"{self.id}.1") >= self.play.size(self.unseen_acts)


@dataclass
class Stage:
    """A fleet with one worker, its hosts, and the turns on them."""

    fleet: Fleet
    sshd: Sshd
    hosts: list[Login]
    link: Link | None
    turns: list[Turn] = field(default_factory=list)
    former: list[Turn] = field(default_factory=list)  # of earlier performances

    def __post_init__(self) -> None:
        self.worker: Worker = self.fleet.start_worker()
        on_this_machine = [self.fleet.recorded(path, host="local") for path in PLAYS.values()]
        ids = [self.fleet.client.enqueue(request) for request in on_this_machine]
        self.undisturbed = {name: self.fleet.result(turn_id) for name, turn_id in zip(PLAYS, ids, strict=True)}

    def begin(self) -> None:
        """Start all turns, and wait until each is in the middle."""
        self.former += self.turns
        self.turns = []
        for login in self.hosts:
            for name, path in PLAYS.items():
                play = login.play(f"{name}-{len(self.former)}", *_in_thirds(path))
                request = login.request(self.fleet, agent="scripted", options=play.options)
                self.turns.append(Turn(self.fleet.client.enqueue(request), name, play, login))
        until(lambda: all(len(self.fleet.events(turn.id)) > 1 for turn in self.turns), "turns that are under way")

    def go_on_unseen(self) -> None:
        """Let every turn play on by itself, and some to their ends."""
        for turn in self.turns:
            turn.play.cue(*range(2, turn.unseen_acts + 1))
        until(lambda: all(turn.has_gone_on for turn in self.turns), "turns that go on by themselves")

    def finish(self) -> None:
        """Let all turns come to their ends: as if nothing had happened, each has run once and is booked once."""
        for turn in self.turns:
            turn.play.cue(3)
        for turn in self.turns:
            self._assert_undisturbed(turn)
        self._assert_started_once()
        self._assert_totals()
        self._assert_nothing_left()

    def _assert_undisturbed(self, turn: Turn) -> None:
        result, expected = self.fleet.result(turn.id), self.undisturbed[turn.name]
        assert (result.status, result.attempts) == (Status.COMPLETED, 1), result.error
        assert (result.text, result.usage) == (expected.text, expected.usage)
        events = self.fleet.events(turn.id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert _story(events) == _story(self.fleet.events(expected.turn_id))
        assert self.fleet.ledger.accounting.usage_of(turn.id) == self.fleet.ledger.accounting.usage_of(
            expected.turn_id
        )

    def _assert_started_once(self) -> None:
        for login in self.hosts:
            here = [f"{turn.id}.1" for turn in (*self.former, *self.turns) if turn.login is login]
            assert Counter(login.starts) == Counter(here)

    def _assert_totals(self) -> None:
        """The books have every turn once, and nothing else."""
        names = [*PLAYS, *(turn.name for turn in (*self.former, *self.turns))]
        expected: Counter[str] = Counter()
        for name in names:
            for model, used in self.undisturbed[name].usage.by_model.items():
                expected[model] += sum(count for key, count in used if key != "cost_usd")
        totals = self.fleet.ledger.reports.totals()
        assert {row.model: row.tokens.total for row in totals.models} == expected
        assert [(row.outcome, row.turns) for row in totals.outcomes] == [("completed", len(names))]

    def _assert_nothing_left(self) -> None:
        until(lambda: not any(login.left() for login in self.hosts), "the end of all processes")
        until(lambda: not any(list(login.spools.iterdir()) for login in self.hosts), "the spools to be removed")


@contextmanager
def open_stage(root: Path, link: Link | None = None, **settings: str) -> Iterator[Stage]:
    """A stage on a new sshd, behind a link if there is one."""
    with Sshd(link=link) as sshd, logins(sshd, root) as hosts, ssh_fleet(root, hosts, **settings) as fleet:
        yield Stage(fleet, sshd, hosts, link)


def _in_thirds(recording: Path) -> list[list[str]]:
    lines = recording.read_text().splitlines()
    third = len(lines) // 3
    return [lines[:third], lines[third : 2 * third], lines[2 * third :]]


def _story(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name not in _BY_CHANCE} for event in events]

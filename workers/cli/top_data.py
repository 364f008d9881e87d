"""Data of `runturn top`, read from the ledger only, so that it works wherever the ledger can be reached."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ops.ledger import Budget, HostLoad, Ledger, Period, RunningTurn, Spending
from workers.cli.live_view import Price, TurnView

_HOUR_S = 3_600.0
_PAST_S = 10.0  # maximum age of figures of the past: at 100,000 turns a day they take more than half a second


@dataclass(frozen=True, slots=True)
class HostLine:
    """A host that a worker has announced, or that an agent runs on."""

    name: str
    slots_in_use: int
    slots: int | None  # None: limit not configured here
    seen_s: float | None  # since a worker last announced it, to a minute; None: never
    cpu_s: float | None  # CPU time of the attempts that ended in the last hour; None: unknown
    peak_memory_bytes: int | None  # of a single one of them; None: unknown


@dataclass(frozen=True, slots=True)
class TurnLine:
    """A running turn."""

    turn_id: str
    agent: str
    host: str | None
    producer: str
    attempt: int
    age_s: float  # since its first attempt, or since it was queued
    doing: str
    labels: Mapping[str, str]
    prompt: str | None  # its beginning, without secrets; None: removed since
    idle_s: float | None  # since its last event; None: no event yet
    tokens: int
    cost_usd: float | None  # None: a model has no price
    exact: bool  # False: tokens and cost are lower bounds
    followed: bool  # False: its worker's lease has expired, and none has taken over yet


@dataclass(frozen=True, slots=True)
class Overview:
    """Snapshot of the fleet."""

    at: float
    hosts: list[HostLine]
    running_turns: int
    turns: list[TurnLine]  # the oldest ones
    ready_turns: int  # start as soon as a slot is free
    oldest_wait_s: float | None
    parked: Mapping[str, int]  # by reason
    last_hour: Spending
    today: Spending  # UTC, as for budgets
    budgets: list[Budget]
    dead_letters: int


@dataclass(slots=True)
class _Followed:
    """View of one turn, and how far its events were read."""

    view: TurnView
    labels: Mapping[str, str]
    prompt: str | None
    seq: int = 0
    last_at: float | None = None


@dataclass(slots=True)
class Survey:
    """Source of successive snapshots that reads only new events."""

    ledger: Ledger
    price: Price
    beginnings: Callable[[Sequence[str]], dict[str, str]]  # of these turns' prompts, without secrets
    slots: Mapping[str, int]  # of hosts with a configured limit
    _followed: dict[str, _Followed] = field(default_factory=dict)
    _past: tuple[float, list[Spending], Mapping[str, HostLoad]] | None = None

    def look(self, now: float, most: int) -> Overview:
        """Take a snapshot with at most `most` running turns. Raise LedgerUnavailable if reading fails."""
        count, running = self.ledger.reports.running(most)
        backlog = self.ledger.reports.backlog(now)
        (last_hour, today), loads = self._ended(now)
        seen = self.ledger.hosts.known()
        self._follow([turn.turn_id for turn in running])
        names = sorted({*seen, *backlog.open_attempts, *self.slots})
        return Overview(
            at=now,
            hosts=[
                HostLine(
                    name=name,
                    slots_in_use=backlog.open_attempts.get(name, 0),
                    slots=self.slots.get(name),
                    seen_s=max(0.0, now - max(row.at for row in seen[name])) if name in seen else None,
                    cpu_s=_seconds(loads[name].cpu_ms) if name in loads else None,
                    peak_memory_bytes=loads[name].peak_memory_bytes if name in loads else None,
                )
                for name in names
            ],
            running_turns=count,
            turns=[self._line(turn, now) for turn in running],
            ready_turns=backlog.ready,
            oldest_wait_s=None if backlog.ready_since is None else max(0.0, now - backlog.ready_since),
            parked=dict(sorted(backlog.parked.items())),
            last_hour=last_hour,
            today=today,
            budgets=self.ledger.budgets.all_of(now),
            dead_letters=backlog.dead_letters,
        )

    def _ended(self, now: float) -> tuple[list[Spending], Mapping[str, HostLoad]]:
        if self._past is None or not 0 <= now - self._past[0] < _PAST_S:
            reports, hour = self.ledger.reports, now - _HOUR_S
            self._past = now, reports.spending([hour, Period.DAY.start(now)]), reports.host_loads(hour)
        return self._past[1:]

    def _follow(self, turn_ids: Sequence[str]) -> None:
        known, new = self._followed, [turn_id for turn_id in turn_ids if turn_id not in self._followed]
        labels, prompts = self.ledger.reports.labels(new), self.beginnings(new)
        for turn_id in new:
            known[turn_id] = _Followed(
                TurnView(self.price, self.ledger.clock), labels.get(turn_id, {}), prompts.get(turn_id)
            )
        self._followed = {turn_id: known[turn_id] for turn_id in turn_ids}
        for turn_id, followed in self._followed.items():
            for seq, line in self.ledger.events.after(turn_id, followed.seq):
                event = json.loads(line)
                followed.view.take(event)
                followed.seq, followed.last_at = seq, event["at"]

    def _line(self, turn: RunningTurn, now: float) -> TurnLine:
        followed = self._followed[turn.turn_id]
        tokens, cost_usd, exact = followed.view.used
        return TurnLine(
            turn_id=turn.turn_id,
            agent=turn.agent,
            host=turn.host,
            producer=turn.producer,
            attempt=turn.attempt,
            age_s=max(0.0, now - (turn.started_at or turn.created_at)),
            doing="cancelling" if turn.cancel_requested else followed.view.doing,
            labels=followed.labels,
            prompt=followed.prompt,
            idle_s=None if followed.last_at is None else max(0.0, now - followed.last_at),
            tokens=tokens,
            cost_usd=cost_usd,
            exact=exact,
            followed=turn.owner_expires is not None and turn.owner_expires > now,
        )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000

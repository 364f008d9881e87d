"""A turn as all ledger modules share it: its state, its attempts, and the claim on it.

Values returned by a single module are defined there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_result import SessionResult
from adapters.usage import Usage


class State(StrEnum):
    """State of a turn."""

    QUEUED = "queued"  # for its first attempt
    RUNNING = "running"  # claimed; the agent may be running even while no worker owns the turn
    WAITING = "waiting"  # parked until `due_at`
    SETTLED = "settled"  # has its final result


UNSETTLED = (State.QUEUED, State.RUNNING, State.WAITING)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the agent for a turn."""

    turn_id: str
    attempt: int  # 1, 2, …
    host: str
    spool_id: str
    seal: str = field(repr=False)  # proves that the end of its agent was reported by its host's own shells
    session_id: str | None
    resume: bool
    first_seq: int  # sequence number of its first event
    started_at: float
    ended_at: float | None = None  # None: open, its agent may be running
    outcome: str | None = None  # "completed" or an error kind
    exit_code: int | None = None
    unreachable_since: float | None = None  # since when its host is unreachable; None: the last contact succeeded
    lease_s: int | None = None  # without a worker, its host terminates the agent after this; None: not recorded
    stop_grace_s: float | None = None  # between the two signals that do so; None: not recorded
    workspace: str | None = None  # made for it on its host; None: none yet, so no agent was started in it
    agent_version: str | None = None  # as found on its host, then as reported by the agent; None: unknown
    start_sent: bool = False  # its host may have been told to start the agent


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """End of an attempt, and what it used."""

    attempt: int
    usage: Usage
    outcome: str  # "completed" or an error kind
    exit_code: int | None = None
    session_id: str | None = None  # as reported by the agent; used if the attempt began without one
    agent_version: str | None = None  # as reported by the agent; None: keep the one recorded at the start
    cpu_ms: int | None = None  # of the agent and what it waited for; None: unknown
    peak_memory_bytes: int | None = None  # most that was seen; None: nothing was


@dataclass(frozen=True, slots=True)
class Waiter:
    """A Celery task waiting for a turn, or for a session of turns."""

    turn_id: str  # or the id of the session of turns
    task_id: str
    follows: str = ""  # digest of the tasks that follow it, part of its key; blank: none
    message: str | None = None  # JSON, what Celery needs to execute it; None: not received yet
    since: float | None = None  # when its result became available; None: not yet
    sent: frozenset[str] = frozenset()  # following tasks that were sent, if not all could be


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn, or a session of turns, requested by a task."""

    result: TurnResult | SessionResult | None  # if it already has one
    again: bool  # the task had requested it before, or it was settled


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a turn, until another owner claims it."""

    turn_id: str
    owner: str
    epoch: int  # fencing token: increases with every claim of the turn
    request: TurnRequest  # as first submitted
    created_at: float
    ready_at: float | None  # since when it could have been taken; None: it was taken before
    cancel_requested: bool
    attempts: tuple[Attempt, ...]  # all so far, first to last
    session_run: str | None = None  # the session it belongs to; None: a single turn
    expires_at: float | None = None  # must not begin after this; None: no limit
    waiters: tuple[Waiter, ...] = ()
    faults: int = 0  # faults of ours in a row that set the turn aside

    @property
    def waiter(self) -> Waiter | None:
        """The task executed while the turn runs; the others are executed with its result."""
        own = (each for each in self.waiters if each.task_id == self.turn_id)
        return next(own, self.waiters[0] if self.waiters else None)

    @property
    def last(self) -> Attempt | None:
        """The latest attempt, open or not."""
        return self.attempts[-1] if self.attempts else None

    @property
    def open(self) -> Attempt | None:
        """The attempt to attach to; None: begin a new one."""
        return self.last if self.last is not None and self.last.ended_at is None else None

"""A turn as all of these modules see it: its state, its attempts, and the claim on it.

What one module tells stands in that module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from adapters.protocol.request import TurnRequest
from adapters.usage import Usage


class State(StrEnum):
    """Where a turn stands."""

    QUEUED = "queued"  # for its first attempt
    RUNNING = "running"  # claimed; the agent may be running even while nobody owns the turn
    WAITING = "waiting"  # parked until `due_at`
    SETTLED = "settled"  # has its result, for good


UNSETTLED = (State.QUEUED, State.RUNNING, State.WAITING)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the agent for a turn."""

    turn_id: str
    attempt: int  # 1, 2, …
    host: str
    spool_id: str
    session_id: str | None
    resume: bool
    first_seq: int  # the sequence number that its first event gets
    started_at: float
    ended_at: float | None = None  # None: open, its agent may be running
    outcome: str | None = None  # "completed" or an error kind
    exit_code: int | None = None
    unreachable_since: float | None = None  # since when its host is out of reach; None: it was reached last
    lease_s: int | None = None  # its host ends the agent after so long without a worker; None: nobody noted it
    stop_grace_s: float | None = None  # between two signals to the agent then; None: nobody noted it
    workspace: str | None = None  # that was made for it on its host; None: none yet, so no agent was started in it
    agent_version: str | None = None  # as its host was seen to have it, then as the agent told it; None: not known


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, and what it used."""

    attempt: int
    usage: Usage
    outcome: str  # "completed" or an error kind
    exit_code: int | None = None
    session_id: str | None = None  # as its agent told it; counts for an attempt that began without one
    agent_version: str | None = None  # as its agent told it; None: what was noted at its beginning stands


@dataclass(frozen=True, slots=True)
class Waiter:
    """A Celery task that waits for a turn, or for a session of turns."""

    turn_id: str  # or that of the session
    task_id: str
    follows: str = ""  # a digest of what is to follow on it, part of its key; blank: nothing
    message: str | None = None  # JSON, what Celery needs to execute it; None: it has not come yet
    since: float | None = None  # since when it can be told; None: what it waits for has not ended
    sent: frozenset[str] = frozenset()  # what follows on it and was sent, where not all could be


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a turn, until another owner claims it."""

    turn_id: str
    owner: str
    epoch: int  # fencing token: every claim of the turn gets a higher one
    request: TurnRequest  # as it was submitted first
    created_at: float
    ready_at: float | None  # since when it could have been taken for the first time; None: it was taken before
    cancel_requested: bool
    attempts: tuple[Attempt, ...]  # all so far, first to last
    session_run: str | None = None  # whose turn it is; None: it is one by itself
    expires_at: float | None = None  # it is not to begin after that
    waiters: tuple[Waiter, ...] = ()

    @property
    def waiter(self) -> Waiter | None:
        """The task that is executed while the turn runs; the others are told its result."""
        own = (each for each in self.waiters if each.task_id == self.turn_id)
        return next(own, self.waiters[0] if self.waiters else None)

    @property
    def last(self) -> Attempt | None:
        """The latest attempt, open or not."""
        return self.attempts[-1] if self.attempts else None

    @property
    def open(self) -> Attempt | None:
        """The attempt to attach to; None: a new one is to be begun."""
        return self.last if self.last is not None and self.last.ended_at is None else None

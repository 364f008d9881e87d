"""What the ledger tells: frozen values, no database behind them.

Times are Unix seconds, as the callers passed them in. Money is US dollars, None where no price is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from adapters.request import TurnRequest
from adapters.result import TurnResult
from adapters.session_request import SessionRequest
from adapters.session_result import SessionResult
from adapters.usage import Tokens, Usage
from ops.ledger.periods import Period

NO_TOKENS = Tokens()

Labels = Mapping[str, str]


class State(StrEnum):
    """Where a turn stands."""

    QUEUED = "queued"  # for its first attempt
    RUNNING = "running"  # claimed; the agent may be running even while nobody owns the turn
    WAITING = "waiting"  # parked until `due_at`
    SETTLED = "settled"  # has its result, for good


class CostKey(StrEnum):
    """What a bill is split by."""

    MODEL = "model"
    AGENT = "agent"
    HOST = "host"
    LABEL = "label"


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


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, and what it used."""

    attempt: int
    usage: Usage
    outcome: str  # "completed" or an error kind
    exit_code: int | None = None
    session_id: str | None = None  # as its agent told it; counts for an attempt that began without one


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

    @property
    def last(self) -> Attempt | None:
        """The latest attempt, open or not."""
        return self.attempts[-1] if self.attempts else None

    @property
    def open(self) -> Attempt | None:
        """The attempt to attach to; None: a new one is to be begun."""
        return self.last if self.last is not None and self.last.ended_at is None else None


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn that a task asked for."""

    result: TurnResult | None  # it has one already
    again: bool  # the task had asked before, or the turn was settled


@dataclass(frozen=True, slots=True)
class AskedSession:
    """A session of turns that a task asked for."""

    result: SessionResult | None  # it has one already
    again: bool  # the task had asked before, or it was over


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A session of turns, and where it stands."""

    run_id: str
    request: SessionRequest | None  # None: it was refused, or is forgotten
    number: int  # of the turn that is open, or was last; 0: it was refused
    turn: str | None  # that turn's id
    cancel_requested: bool
    created_at: float
    settled_at: float | None
    result: SessionResult | None  # None: it goes on


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else is at this turn."""

    turn_id: str
    owner: str | None  # None: nobody at the moment, but it is not free either
    expires: float | None


@dataclass(frozen=True, slots=True)
class NotDue:
    """The turn is parked for later."""

    turn_id: str
    due_at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The turn has its result."""

    result: TurnResult


@dataclass(frozen=True, slots=True)
class Renewal:
    """What became of an owner's claims."""

    held: frozenset[str]  # turn ids still owned; the others are lost
    cancelled: frozenset[str]  # turn ids among `held` that somebody wants cancelled


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive events of a turn."""

    claim: Claim
    first_seq: int
    lines: Sequence[bytes]  # one JSON object each, without a newline


@dataclass(frozen=True, slots=True)
class Seen:
    """What some worker says, or said, of a host."""

    labels: Labels
    at: float  # when it was said last, to a minute


@dataclass(frozen=True, slots=True)
class SessionRow:
    """Where a session lives, and the turn that is in it."""

    session_id: str
    agent: str
    host: str
    workspace: str
    locked_by: str | None  # turn id
    updated_at: float


@dataclass(frozen=True, slots=True)
class MadeWorkspace:
    """What the books know of a workspace that was made for a turn."""

    settled_at: float | None  # of the turn; None: it may still need it
    kept: bool  # the turn asked for that, or it is forgotten whether it did
    path: str | None  # on its host


@dataclass(frozen=True, slots=True)
class InUse:
    """Another turn is in the session."""

    session_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class HostBusy:
    """All slots of the host are taken."""

    host: str
    open: int  # attempts there that have not ended


class BudgetKey(NamedTuple):
    """Which budget: that of the turns with the label name=value, for a period."""

    name: str
    value: str
    period: Period

    def __str__(self) -> str:
        return f"{self.name}={self.value}/{self.period}"


@dataclass(frozen=True, slots=True)
class Budget:
    """What turns with a label may cost in a period, and where that stands. Money in US dollars."""

    name: str
    value: str
    period: Period
    limit_usd: float
    reserve_usd: float  # by an attempt whose request has no max_cost_usd
    spent_usd: float  # by attempts that ended in the running period
    reserved_usd: float  # by attempts that are open
    resets_at: float | None  # when the next period begins; None: never

    @property
    def key(self) -> BudgetKey:
        """Which one it is."""
        return BudgetKey(self.name, self.value, self.period)


@dataclass(frozen=True, slots=True)
class OverBudget:
    """The attempt might cost more than is left."""

    budget: Budget
    wanted_usd: float  # what it would have reserved


@dataclass(frozen=True, slots=True)
class SpoolRow:
    """The attempt that a spool belongs to."""

    turn_id: str
    attempt: int
    host: str
    agent: str
    session_id: str | None
    resume: bool
    ended_at: float | None  # None: open, the spool is still to be read
    outcome: str | None
    usage_observed: bool  # False: open, or booked with an estimate or nothing, to be amended
    # Given if the usage is to be amended, unless only a newer runturn can read it: for the command, which names
    # session files.
    request: TurnRequest | None
    owner: str | None  # of the turn
    owner_expires: float | None
    workspace: str | None = None  # that was made for it

    def owned(self, now: float) -> bool:
        """Whether somebody works on the turn, as far as is known: the lease is not over."""
        return self.owner is not None and self.owner_expires is not None and self.owner_expires > now

    @property
    def unreadable(self) -> bool:
        """Whether its usage is to be amended, and its request is none that this runturn can read."""
        return self.ended_at is not None and not self.usage_observed and self.request is None


@dataclass(frozen=True, slots=True)
class Spent:
    """Booked usage. Estimates stand apart and are in no other number."""

    tokens: Tokens = NO_TOKENS  # observed
    cost_usd: float | None = None  # of the observed tokens that have a price; None: none has
    unpriced_tokens: int = 0  # observed tokens without a price
    estimated: Tokens = NO_TOKENS


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as lists show it, without its request and result."""

    turn_id: str
    state: State
    agent: str
    host: str | None  # of the latest attempt, before that the one asked for
    session_id: str | None
    workspace: str | None
    labels: Mapping[str, str]
    attempts: int
    owner: str | None
    owner_expires: float | None
    cancel_requested: bool
    due_at: float | None
    wait_reason: str | None
    created_at: float
    started_at: float | None  # of the first attempt
    settled_at: float | None
    status: str | None
    error_kind: str | None
    spent: Spent


@dataclass(frozen=True, slots=True)
class Backlog:
    """What there is to do."""

    ready: int  # turns that start as soon as there is room for them
    ready_since: float | None  # of the one that could have started first; None: there is none
    parked: Mapping[str, int]  # turns that wait for a time, by reason: an error kind, or `due_later`
    open_attempts: Mapping[str, int]  # attempts that have not ended, by host
    dead_letters: int


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that was claimed and is not settled or parked yet."""

    turn_id: str
    agent: str
    host: str | None  # of the latest attempt, before that the one asked for
    producer: str
    attempt: int  # the latest one begun, 0 before the first
    created_at: float
    started_at: float | None  # of the first attempt
    owner_expires: float | None  # before now: no worker follows it
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Spending:
    """What was used in a time."""

    tokens: int  # observed
    cost_usd: float | None  # of those that have a price; None: none has
    unpriced_tokens: int


@dataclass(frozen=True, slots=True)
class CostRow:
    """One line of a bill."""

    key: str  # a model, an agent, a host, or name=value of a label
    turns: int
    spent: Spent


@dataclass(frozen=True, slots=True)
class ModelTotals:
    """Everything ever booked for one model of one agent."""

    agent: str
    model: str
    observed: bool  # False: these are estimates, with those that were replaced since
    tokens: Tokens
    cost_usd: float | None  # of what has a price; None: nothing has
    unpriced_tokens: int


@dataclass(frozen=True, slots=True)
class OutcomeTotals:
    """How often turns of an agent ended that way."""

    agent: str
    outcome: str  # "completed" or an error kind
    turns: int


@dataclass(frozen=True, slots=True)
class TranscriptSource:
    """What a turn's transcript is made of."""

    turn_id: str
    agent: str
    host: str | None
    session_id: str | None
    attempt: int  # the last one; 0: there was none
    created_at: float
    settled_at: float
    status: str
    error_kind: str | None
    events: tuple[bytes, ...]  # one JSON object each, in order
    stderr: Mapping[int, bytes]  # by attempt, of those that wrote any


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What is no longer in the ledger; false if that is nothing."""

    details: int = 0  # turns, and sessions of turns, without their events and their request from now on
    turns: int = 0
    sessions: int = 0
    session_runs: int = 0  # sessions of turns

    def __bool__(self) -> bool:
        return self != _NOTHING

    def __add__(self, other: Forgotten) -> Forgotten:
        return Forgotten(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


_NOTHING = Forgotten()


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals: they only ever grow, and survive every crash."""

    models: tuple[ModelTotals, ...]
    outcomes: tuple[OutcomeTotals, ...]

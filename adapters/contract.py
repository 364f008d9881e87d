"""The contract between runturn and an agent.

An adapter is a set of functions of values. To run a turn, a worker asks it to `check` the request, to `build` the
command, and for a `parser`; it folds the parser's events with `adapters.turn_state`, and asks for a `judgement`
when the process has ended. Everything that touches a machine happens elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pydantic import JsonValue

from adapters.command import Command, SessionFiles
from adapters.errors import TurnError
from adapters.prices import NO_PRICES, PriceTable
from adapters.protocol.request import TurnRequest
from adapters.turn_state import Parser, TurnState
from adapters.usage import NO_USAGE, Tokens, Usage, UsageSource
from adapters.versions import Versions

_ENDING = (1, 2, 9, 15)  # SIGHUP, SIGINT, SIGKILL, SIGTERM: a shell reports them as 128 more


@dataclass(frozen=True, slots=True)
class Session:
    """The session a turn runs in."""

    session_id: str  # "": a new one, of an agent that names its sessions itself
    resume: bool  # False: the turn creates it


@dataclass(frozen=True, slots=True)
class Exit:
    """How an agent's process ended."""

    code: int | None  # as a shell or subprocess gives it: negative or above 128 for a signal; None: lost
    stderr: str = ""  # its last lines

    @property
    def signalled(self) -> bool:
        """Whether somebody ended the process with a signal; a crash, such as SIGSEGV, is none of it."""
        return self.code is not None and (-self.code in _ENDING or self.code - 128 in _ENDING)


# Which files to read next, by all that was read of those before, at first nothing; None: no more.
NextFiles = Callable[[Sequence[bytes]], SessionFiles | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an adapter makes of a turn that has ended."""

    error: TurnError | None
    usage: Usage = NO_USAGE  # the best that the stream has
    read_session_files: bool = False  # True: they know better, or whether `usage` is complete
    next_files: NextFiles | None = field(default=None, compare=False)  # None: those that the command names

    def usage_with(self, exact: Usage) -> Usage:
        """The usage once the session files have been read: theirs, unless they have told nothing."""
        return exact if exact.by_model or exact.source is UsageSource.RESULT else self.usage


class Billing(StrEnum):
    """Who is billed for an agent's tokens."""

    API = "api"
    SUBSCRIPTION = "subscription"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an agent can do, for routing and for refusing early."""

    resume: bool  # can continue a session
    structured_output: bool
    cost_cap: bool  # ends by itself at max_cost_usd
    live_output_tokens: bool  # its stream tells exact output tokens while it runs
    names_sessions: bool = False  # gives a new session an id of its own, which its first event tells
    live: bool = False  # can be talked to while it runs: see adapters.live
    plans: bool = False  # answers a plan turn
    billing: frozenset[Billing] = frozenset({Billing.API})
    max_context_tokens: int | None = None  # None: depends on the model
    task_types: frozenset[str] = frozenset({"code", "test", "review", "docs"})
    languages: frozenset[str] = frozenset({"*"})  # *: any
    versions: Versions | None = None  # what is known of them; None: it has none, and is never asked for it
    api_credentials: frozenset[str] = frozenset()  # of its `credentials`, those that an API account is billed for


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an operator has configured for an agent; a factory makes the adapter of it."""

    command: str | None = None  # its program; None: as it is usually called, from the PATH
    options: Mapping[str, JsonValue] = field(default_factory=dict)  # defaults of its requests' options
    stop_grace_s: float = 5.0  # between two rungs of its ladder of signals
    prices: PriceTable = NO_PRICES  # for agents that do not tell what they cost
    tools: tuple[str, ...] = ()  # functions that its turns may name as tools, as package.module:function


@dataclass(frozen=True, slots=True)
class Health:
    """What a look at an agent's installation told."""

    healthy: bool
    version: str | None = None
    problem: str | None = None  # what is wrong and what to do


class Adapter(Protocol):
    """One agent."""

    @property
    def name(self) -> str:
        """What requests call it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def tools(self) -> frozenset[str]:
        """The tools that come with it, by the names in its events; metrics tell only these apart."""
        ...

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Names of the variables that it logs in with, in such an environment; its turns always get them."""
        ...

    def check(self, request: TurnRequest) -> None:
        """Refuse what cannot run: raises InvalidRequest with the field named."""
        ...

    def build(self, request: TurnRequest, session: Session) -> Command:
        """The process to start."""
        ...

    def parser(self) -> Parser:
        """A fresh parser for one attempt's output."""
        ...

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """Whether the turn succeeded, and what it used."""
        ...

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """Read the usage of one attempt from what it appended to its session files.

        An agent's own report stays the base, if it is as billed: they tell more, or that something is missing.
        """
        ...

    def price(self, model: str, tokens: Tokens) -> float | None:
        """What these tokens cost in US dollars, for those who watch a turn; None: not known."""
        ...

    def soft_stop(self, reason: str) -> bytes | None:
        """What the spool's file `stop` has to say for the agent to end by itself at its next tool call.

        None: it knows no such way.
        """
        ...

    def probe(self) -> tuple[str, ...]:
        """The command that tells whether the agent is installed, and which version."""
        ...

    def health(self, end: Exit, stdout: str) -> Health:
        """Read the outcome of `probe`."""
        ...


AdapterFactory = Callable[[AgentConfig], Adapter]  # raises InvalidRequest for options that make no sense

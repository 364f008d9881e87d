"""The contract between runturn and an agent.

An adapter is a set of pure functions. To run a turn, a worker calls `check` for the request, `build` for the
command and `parser` for its output; it folds the parser's events with `adapters.turn_state` and calls `judgement`
when the process has exited. All I/O happens elsewhere.
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

_ENDING = (1, 2, 9, 15)  # SIGHUP, SIGINT, SIGKILL, SIGTERM: a shell adds 128


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a turn."""

    session_id: str  # "": a new session of an agent that chooses its own ids
    resume: bool  # False: the turn creates it


@dataclass(frozen=True, slots=True)
class Exit:
    """Exit of an agent's process."""

    code: int | None  # as a shell or subprocess reports it: negative or above 128 for a signal; None: lost
    stderr: str = ""  # the last lines

    @property
    def signalled(self) -> bool:
        """Return True if a signal terminated the process; a crash such as SIGSEGV does not count."""
        return self.code is not None and (-self.code in _ENDING or self.code - 128 in _ENDING)


# Returns the files to read next, given all lines read so far (none at first); None: no more.
NextFiles = Callable[[Sequence[bytes]], SessionFiles | None]
# Returns the agent's final answer, given all lines of the session files; None: they show none.
FinalAnswer = Callable[[Sequence[bytes]], str | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """An adapter's judgement of a finished attempt."""

    error: TurnError | None
    usage: Usage = NO_USAGE  # the best figures of the stream
    read_session_files: bool = False  # True: they have better figures, or show whether `usage` is complete
    next_files: NextFiles | None = field(default=None, compare=False)  # None: the files named by the command
    # For an error that may only mean that the agent could not print its end: an answer makes it a success.
    final_answer: FinalAnswer | None = field(default=None, compare=False)

    def usage_with(self, exact: Usage) -> Usage:
        """Return the usage after reading the session files: `exact`, unless it is empty."""
        return exact if exact.by_model or exact.source is UsageSource.RESULT else self.usage


class Billing(StrEnum):
    """Account type that is billed for an agent's tokens."""

    API = "api"
    SUBSCRIPTION = "subscription"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class LoginCheck:
    """An agent's own command, free of charge, that tells whether it is logged in: exit status 0, or 1 if not."""

    arguments: tuple[str, ...]  # of the agent's program
    since: str  # the first version with this command; an older one may take it for a prompt
    remedy: str  # how to log in


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of an agent, for routing and early refusal."""

    resume: bool  # can continue a session
    structured_output: bool
    cost_cap: bool  # stops itself at max_cost_usd
    live_output_tokens: bool  # streams exact output token counts while it runs
    names_sessions: bool = False  # chooses the id of a new session, which its first event reports
    live: bool = False  # accepts input while it runs: see adapters.live
    plans: bool = False  # supports plan turns
    billing: frozenset[Billing] = frozenset({Billing.API})
    max_context_tokens: int | None = None  # None: depends on the model
    task_types: frozenset[str] = frozenset({"code", "test", "review", "docs"})
    languages: frozenset[str] = frozenset({"*"})  # *: any
    versions: Versions | None = None  # None: the agent has no versions and is never probed for one
    api_credentials: frozenset[str] = frozenset()  # those of its `credentials` that bill an API account
    login: LoginCheck | None = None  # None: it cannot tell
    root_variable: str | None = None  # the variable without which it refuses to run as root


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Operator configuration of an agent, from which a factory creates the adapter."""

    command: str | None = None  # the program; None: its usual name, from the PATH
    options: Mapping[str, JsonValue] = field(default_factory=dict)  # defaults for the options of requests
    stop_grace_s: float = 5.0  # seconds between two signals of the stop ladder
    prices: PriceTable = NO_PRICES  # for agents that do not report their cost
    tools: tuple[str, ...] = ()  # functions that turns may use as tools, as package.module:function


@dataclass(frozen=True, slots=True)
class Health:
    """Health of an agent's installation."""

    healthy: bool
    version: str | None = None
    problem: str | None = None  # what is wrong and how to fix it


class Adapter(Protocol):
    """Adapter of one agent."""

    @property
    def name(self) -> str:
        """Return the agent's name in requests."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Return the agent's capabilities."""
        ...

    @property
    def tools(self) -> frozenset[str]:
        """Return the names of the built-in tools as its events report them; metrics label only these by name."""
        ...

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of its login variables, given an environment; they are always forwarded."""
        ...

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest, naming the field, if the request cannot run."""
        ...

    def build(self, request: TurnRequest, session: Session) -> Command:
        """Return the command for this attempt."""
        ...

    def parser(self) -> Parser:
        """Return a fresh parser for one attempt's output."""
        ...

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """Judge a finished attempt: return its error, if any, and its usage."""
        ...

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """Return the usage of one attempt from the lines it appended to its session files; none if it keeps none.

        If the agent's report matches its bill, start from the report; the files add to it or show that it is
        incomplete.
        """
        ...

    def price(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost of these tokens in US dollars, for live display; None if unknown."""
        ...

    def soft_stop(self, reason: str) -> bytes | None:
        """Return the content of the spool's file `stop` that makes the agent stop at its next tool call.

        None: the agent has no soft stop.
        """
        ...

    def probe(self) -> tuple[str, ...]:
        """Return the command that checks whether the agent is installed and prints its version."""
        ...

    def health(self, end: Exit, stdout: str) -> Health:
        """Return the health read from the outcome of `probe`."""
        ...


AdapterFactory = Callable[[AgentConfig], Adapter]  # raises InvalidRequest for invalid options

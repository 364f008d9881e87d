"""Runtime validation of a third-party adapter: its return values are checked at the boundary.

The worker survives anything that it raises or returns. An invalid value fails the turn, naming the agent and the
field; usage seen so far is still booked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeVar, cast, get_args

from pydantic import JsonValue

from adapters.command import Command, SessionFiles
from adapters.contract import Adapter, Capabilities, Exit, FinalAnswer, Health, Judgement, NextFiles, Session
from adapters.errors import AgentFailed, TurnError
from adapters.events import AdapterFault, Event
from adapters.live import ControlRequest, Conversation, Desk, LiveAdapter, Wire
from adapters.protocol.request import TurnRequest
from adapters.runtime_types import fault_in
from adapters.toolkit.json_lines import malformed
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage

_EVENTS = get_args(Event)
_RAISED = (Exception, SystemExit)  # an adapter's sys.exit() must not end the worker and its turns

T = TypeVar("T")


class ValidatedAdapter:
    """Wrapper of an untrusted `adapters.contract.Adapter`."""

    def __init__(self, adapter: Adapter) -> None:
        """Raise AgentFailed if the adapter's attributes are invalid or a method is missing."""
        self._adapter = adapter
        self.name = _the(str, adapter.name, "an adapter", "name")
        self.capabilities = _the(Capabilities, adapter.capabilities, self.name, "capabilities")
        self.tools = _the(frozenset, adapter.tools, self.name, "tools")
        # Check here: an adapter cannot be refused once turns use it.
        for method in _METHODS:
            if not callable(getattr(adapter, method, None)):
                raise _fault(self.name, method, "is missing")
        if self.capabilities.live and not callable(getattr(adapter, "converse", None)):
            raise _fault(self.name, "converse", "is missing, though capabilities.live is set")

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of its login variables."""
        return self._returned(tuple, "credentials", lambda: self._adapter.credentials(environ))

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest if this agent cannot run the request."""
        self._call("check", lambda: self._adapter.check(request))

    def build(self, request: TurnRequest, session: Session) -> Command:
        """Return the command for this attempt."""
        command = self._returned(Command, "build", lambda: self._adapter.build(request, session))
        if PurePosixPath(command.cwd) != PurePosixPath(request.workspace):
            raise _fault(self.name, "build().cwd", "is not the workspace of the request")
        return command

    def parser(self) -> Parser:
        """Return a fresh parser that never raises."""
        try:
            return _CheckedParser(self.name, self._call("parser", self._adapter.parser))
        except TurnError as error:
            return _NoParser(error.message)

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """Judge a finished attempt. If the adapter fails, take the usage from the events and the session files."""
        try:
            judged = self._returned(Judgement, "judgement", lambda: self._adapter.judgement(state, end))
        except TurnError as error:
            return Judgement(error, state.estimate, read_session_files=True)
        if judged.next_files is not None:
            judged = replace(judged, next_files=self._next_files(judged.next_files))
        if judged.final_answer is not None:
            judged = replace(judged, final_answer=self._final_answer(judged.final_answer))
        if state.fault is None:
            return judged
        usage = replace(judged.usage, complete=False)  # an unread line may have reported usage
        return replace(judged, error=AgentFailed(state.fault), usage=usage)

    def _next_files(self, following: NextFiles) -> NextFiles:
        """Return the adapter's choice of session files, validated. The result raises AgentFailed."""

        def checked(lines: Sequence[bytes]) -> SessionFiles | None:
            files = self._call("judgement().next_files", lambda: following(lines))
            return files if files is None else _the(SessionFiles, files, self.name, "judgement().next_files()")

        return checked

    def _final_answer(self, find: FinalAnswer) -> FinalAnswer:
        """Return the adapter's search for the answer, validated. The result raises AgentFailed."""

        def checked(lines: Sequence[bytes]) -> str | None:
            text = self._call("judgement().final_answer", lambda: find(lines))
            return text if text is None else _the(str, text, self.name, "judgement().final_answer()")

        return checked

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """Return the attempt's usage from its session files. Raise AgentFailed if it is invalid."""
        return self._returned(Usage, "session_usage", lambda: self._adapter.session_usage(lines, state))

    def price(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost of these tokens in US dollars; None if it is unknown or invalid."""
        try:
            cost = self._adapter.price(model, tokens)
        except _RAISED:
            return None
        return float(cost) if isinstance(cost, int | float) and 0 <= cost < float("inf") else None

    def soft_stop(self, reason: str) -> bytes | None:
        """Return the content of the stop file. If it is invalid, return None: the agent is stopped by signals."""
        try:
            said = self._adapter.soft_stop(reason)
        except _RAISED:
            return None
        return said if isinstance(said, bytes) else None

    def probe(self) -> tuple[str, ...]:
        """Return the version command."""
        argv = self._returned(tuple, "probe", self._adapter.probe)
        if not argv:
            raise _fault(self.name, "probe()", "is empty: it names no program")
        return argv

    def health(self, end: Exit, stdout: str) -> Health:
        """Return the health read from the probe's outcome; never raises."""
        try:
            return self._returned(Health, "health", lambda: self._adapter.health(end, stdout))
        except TurnError as error:
            return Health(False, problem=error.message)

    def converse(self, request: TurnRequest, wire: Wire, desk: Desk) -> Conversation:
        """Return the attempt's conversation. Call only if the capabilities include `live`."""
        live = cast("LiveAdapter", self._adapter)
        talk = self._call("converse", lambda: live.converse(request, wire, desk))
        return _CheckedConversation(self.name, talk)

    def _call(self, method: str, function: Callable[[], T]) -> T:
        return _called(self.name, method, function)

    def _returned(self, kind: type[T], method: str, function: Callable[[], T]) -> T:
        return _the(kind, self._call(method, function), self.name, f"{method}()")


_METHODS = (
    "credentials", "check", "build", "parser", "judgement", "session_usage", "price", "soft_stop", "probe",
    "health",
)  # fmt: skip


class _CheckedParser:
    """Parser that reports faults of a third-party parser as events."""

    def __init__(self, agent: str, parser: Parser) -> None:
        self._agent = agent
        self._parser = parser

    def feed(self, line: bytes, at: float | None) -> tuple[Event, ...]:
        """Read one line; never raises."""
        try:
            events = self._parser.feed(line, at)
            fault = self._fault_in(events)
        except _RAISED as error:
            fault = str(_fault(self._agent, "parser().feed()", _said(error)))
        if fault is None:
            return events
        return AdapterFault(fault), malformed(line)

    def _fault_in(self, events: object) -> str | None:
        if not isinstance(events, tuple):
            return str(
                _fault(self._agent, "parser().feed()", f"is {type(events).__name__}, not a tuple of events")
            )
        for number, event in enumerate(events):
            field = f"parser().feed()[{number}]"
            if not isinstance(event, _EVENTS):
                return str(_fault(self._agent, field, f"is {type(event).__name__}, not an event"))
            if (fault := fault_in(event)) is not None:
                return str(_fault(self._agent, f"{field}: {type(event).__name__}", fault))
        return None


class _NoParser:
    """Parser of an adapter that returned none."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def feed(self, line: bytes, at: float | None) -> tuple[Event, ...]:
        """Report the fault and the unread line."""
        return AdapterFault(self._fault), malformed(line)


class _CheckedConversation:
    """Conversation that reports faults of a third-party conversation as AgentFailed."""

    def __init__(self, agent: str, talk: Conversation) -> None:
        self._agent = agent
        self._talk = talk

    async def run(self) -> None:
        """Run the conversation until the agent exits. Raise TurnError if it fails."""
        try:
            await self._talk.run()
        except TurnError:
            raise
        except _RAISED as error:
            raise _fault(self._agent, "converse().run()", _said(error)) from error

    async def control(self, request: ControlRequest) -> Mapping[str, JsonValue]:
        """Carry out a control request and return the agent's answer."""
        try:
            return await self._talk.control(request)
        except TurnError:
            raise
        except _RAISED as error:
            raise _fault(self._agent, f"converse().control({request.control})", _said(error)) from error


def _called(agent: str, method: str, function: Callable[[], T]) -> T:
    try:
        return function()
    except TurnError as error:
        if (fault := fault_in(error)) is not None:
            raise _fault(agent, f"{method}()", f"raised an error that {fault}") from error
        raise
    except _RAISED as error:
        raise _fault(agent, f"{method}()", _said(error)) from error


def _the(kind: type[T], value: object, agent: str, field: str) -> T:
    """Return the value. Raise AgentFailed unless it is of that kind, down to its fields."""
    if not isinstance(value, kind):
        raise _fault(agent, field, f"is {type(value).__name__}, not {kind.__name__}")
    if (fault := fault_in(value)) is not None:
        raise _fault(agent, field, fault)
    return value


def _fault(agent: str, field: str, what: str) -> AgentFailed:
    return AgentFailed(f"the adapter of agent {agent} is faulty: {field} {what}; report this to its author")


def _said(error: BaseException) -> str:
    # The error's text may quote the agent's output or a prompt.
    return f"raised {type(error).__name__}"

"""Folds events into the state of a turn, identically for every agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from adapters import events as ev
from adapters.usage import NO_TOKENS, ModelUsage, Tokens, Usage, UsageSource, limited_name

_RUNNING = ("started", "progress", "running", "pending")  # of a subagent
_STOPPED = ("killed", "stopped")


class Parser(Protocol):
    """Parser of an agent's output lines into events; keeps state that later lines need."""

    def feed(self, line: bytes, at: float | None) -> tuple[ev.Event, ...]:
        """Return the events of one line, given without its newline; never raises.

        `at` is a monotonic time in seconds, None for a line that was printed before the worker attached.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a model, as far as the agent's output shows it."""

    model: str
    billed: ModelUsage  # at least
    final: bool  # False: more may have been billed


class TurnState:
    """State of a turn so far. Feed it events with `apply`, read its attributes."""

    def __init__(self, *, expects_output: bool = False, resumed: bool = False) -> None:
        self.resumed = resumed  # continues a session of earlier turns or attempts
        self.session_id: str | None = None
        self.model: str | None = None
        self.agent_version: str | None = None  # None: not reported by the agent
        self.expects_output = expects_output  # structured output was requested, or the agent reports that it was
        self.text = ""  # the main agent's latest text
        self.answering = False  # the main agent has written text since its last tool call
        self.tools: dict[str, str] = {}  # calls in flight: id -> tool
        self.subagents: set[str] = set()  # running subagents
        self.delegated: set[str] = set()  # all subagents so far
        self.seen: dict[str, Tokens] = {}  # running estimate by model
        self.answers: dict[str, Answer] = {}  # by the ids that the agent's records have for them, too
        self.answer_lost = False  # an answer broke off: its cost may be missing from every report
        self.api_failure: ev.ApiFailure | None = None  # cleared when the API answers again
        self.rate_limit: ev.RateLimit | None = None
        self.interrupted = False  # the agent was interrupted
        self.reports: list[ev.Report] = []  # final reports: background work causes several
        self.api_retries = 0
        self.malformed = 0  # number of unreadable lines
        self.unread = ""  # the last unreadable line
        self.fault: str | None = None  # the adapter's first fault
        self._requested = False  # the main agent waits for the model
        self._handlers: dict[type, Callable[..., None]] = {
            ev.SessionStarted: self._session_started,
            ev.AssistantText: self._text,
            ev.AnswerBegun: self._answer_begun,
            ev.ToolStarted: self._tool_started,
            ev.ToolFinished: self._tool_finished,
            ev.TokenUsage: self._token_usage,
            ev.AnswerLost: self._answer_lost,
            ev.ApiRetry: self._api_retry,
            ev.ApiFailure: self._api_failure,
            ev.RateLimit: self._rate_limit,
            ev.SubagentProgress: self._subagent,
            ev.Interrupted: self._interrupted,
            ev.Malformed: self._malformed,
            ev.AdapterFault: self._adapter_fault,
            ev.TurnCompleted: self._completed,
            ev.TurnFailed: self._failed,
        }

    @property
    def started(self) -> bool:
        """Return True if the agent has started a session."""
        return self.session_id is not None

    @property
    def report(self) -> ev.Report | None:
        """Return the agent's last final report."""
        return self.reports[-1] if self.reports else None

    @property
    def awaits_answer(self) -> bool:
        """Return True if a request to the model is or may be in flight."""
        return self._requested or bool(self.subagents)

    @property
    def estimate(self) -> Usage:
        """Return the usage estimated from events."""
        if not self.seen:
            unread = self.malformed > 0 and not self.started  # the output has an unknown form
            return Usage({}, UsageSource.NONE, complete=not self.awaits_answer and not unread)
        by_model = {model: ModelUsage(tokens) for model, tokens in self.seen.items()}
        return Usage(by_model, UsageSource.STREAM, complete=False)

    @property
    def seen_tokens(self) -> Tokens:
        """Return the running estimate over all models."""
        return sum(self.seen.values(), NO_TOKENS)

    def apply(self, events: Iterable[ev.Event]) -> None:
        """Update the state with events."""
        handler_of = self._handlers.get
        for event in events:
            handler = handler_of(type(event))
            if handler is not None:
                handler(event)

    def answered(self, text: str) -> None:
        """Record the final answer of an agent whose output lacks it."""
        self.text = text
        self.tools.clear()
        self._requested = False

    def _session_started(self, event: ev.SessionStarted) -> None:
        self.session_id = event.session_id
        self.model = event.model
        self.agent_version = event.agent_version or self.agent_version
        self.expects_output |= event.expects_output
        self._requested = True

    def _text(self, event: ev.AssistantText) -> None:
        if not event.subagent:
            self.text = event.text
            self.answering = True

    def _answer_begun(self, _: ev.AnswerBegun) -> None:
        self.answering = True

    def _tool_started(self, event: ev.ToolStarted) -> None:
        self.tools[event.tool_use_id] = event.tool
        self.answering = False

    def _tool_finished(self, event: ev.ToolFinished) -> None:
        self.tools.pop(event.tool_use_id, None)
        self._requested = not self.tools

    def _token_usage(self, event: ev.TokenUsage) -> None:
        model = event.model if event.model in self.seen else limited_name(event.model, len(self.seen))
        before = self.seen.get(model)
        self.seen[model] = event.added if before is None else before + event.added
        self._requested = False
        self.api_failure = None
        if event.answer:
            self._answered(event)

    def _answered(self, event: ev.TokenUsage) -> None:
        billed, known = ModelUsage(event.added, event.cost_usd), self.answers.get(event.answer)
        if known is not None:
            billed = known.billed + billed
        self.answers[event.answer] = Answer(event.model, billed, event.output_known)

    def _answer_lost(self, _: ev.AnswerLost) -> None:
        self.answer_lost = True

    def _api_retry(self, event: ev.ApiRetry) -> None:
        self.api_retries += 1
        if event.status is None:  # the connection broke; how much of the answer was billed is unknown
            self.answer_lost = True

    def _api_failure(self, event: ev.ApiFailure) -> None:
        self.api_failure = event
        self._requested = False

    def _rate_limit(self, event: ev.RateLimit) -> None:
        self.rate_limit = event

    def _subagent(self, event: ev.SubagentProgress) -> None:
        self.delegated.add(event.task_id)
        if event.status in _RUNNING:
            self.subagents.add(event.task_id)
        else:
            self.subagents.discard(event.task_id)
        if event.status in _STOPPED:
            self.answer_lost = True

    def _interrupted(self, event: ev.Interrupted) -> None:
        self.interrupted = True
        if event.amid_tool:
            self._requested = False

    def _malformed(self, event: ev.Malformed) -> None:
        self.malformed += 1
        self.unread = event.text

    def _adapter_fault(self, event: ev.AdapterFault) -> None:
        self.fault = self.fault or event.message

    def _completed(self, event: ev.TurnCompleted) -> None:
        self.reports.append(event.report)
        self._requested = False

    def _failed(self, event: ev.TurnFailed) -> None:
        self.reports.append(event.report)


def fold(parser: Parser, state: TurnState, lines: Iterable[bytes], at: float | None = None) -> list[ev.Event]:
    """Parse lines, apply their events to the state, and return the events in order, including heartbeats."""
    feed = parser.feed
    happened: list[ev.Event] = []
    for line in lines:
        happened += feed(line, at)
    state.apply(happened)
    return happened

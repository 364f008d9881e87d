"""Events of a turn: one class per event, the same for every agent.

To add an event: add a class here and to `Event`, and emit it from an adapter's parser, whose docstring says where.
Watchers then receive it by its `name`, with its fields. Add a handler to `adapters.turn_state` if it changes the
state of the turn, a reader to `workers.turn.replay` if a result depends on it, and a handler to
`workers.cli.live_view` if the live view should show it. Until it has a class, emit a `Notification` or a
`Heartbeat`.

The classes are not frozen: building a frozen instance costs four times as much, and this is the hot path. Treat
events as immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from adapters.usage import ModelUsage, Tokens


@dataclass(slots=True)
class SessionStarted:
    """The agent has started and has a session."""

    name: ClassVar[str] = "session_started"
    session_id: str
    model: str | None = None
    agent_version: str | None = None
    expects_output: bool = False  # the agent was asked for structured output


@dataclass(slots=True)
class AssistantText:
    """Text that the model wrote."""

    name: ClassVar[str] = "text"
    text: str
    subagent: bool = False


@dataclass(slots=True)
class AnswerBegun:
    """The model is streaming an answer, or may be answering in an unknown form; the text follows when complete."""

    name: ClassVar[str] = "answer_begun"


@dataclass(slots=True)
class Thinking:
    """The model's reasoning, as far as the agent shows it."""

    name: ClassVar[str] = "thinking"
    text: str
    subagent: bool = False


@dataclass(slots=True)
class ToolStarted:
    """A tool call started."""

    name: ClassVar[str] = "tool_started"
    tool_use_id: str
    tool: str
    summary: str = ""  # the command, path or pattern: one line, at most 200 characters
    subagent: bool = False


@dataclass(slots=True)
class ToolFinished:
    """A tool call finished."""

    name: ClassVar[str] = "tool_finished"
    tool_use_id: str
    tool: str
    duration_ms: int | None = None  # None when the start was not seen live
    error: str | None = None  # at most 2048 bytes
    output: str = ""  # the beginning of its output, at most 300 characters; empty for an error


@dataclass(slots=True)
class ToolInvoked:
    """A tool call with its parameters and result; only live turns report it."""

    name: ClassVar[str] = "tool_invoked"
    tool_use_id: str
    tool: str
    params: object  # JSON; long texts and lists are cut
    result: object  # likewise


@dataclass(slots=True)
class AgentStatus:
    """Status of a live turn's agent: provisioning, ready for input, or error."""

    name: ClassVar[str] = "agent_status"
    status: str
    detail: str = ""


@dataclass(slots=True)
class TokenUsage:
    """The model answered one request, or more of its answer became known."""

    name: ClassVar[str] = "token_usage"
    model: str
    added: Tokens  # since the last event; these add up to the turn's running estimate
    output_known: bool = False  # True: the answer is complete, and its tokens are final
    api_duration_ms: int | None = None  # from the request to the first block of the answer, if seen live
    answer: str = ""  # the id that the agent's records have for this answer; blank: unknown
    cost_usd: float | None = None  # of `added`; None: unknown


@dataclass(slots=True)
class AnswerLost:
    """An answer broke off and was requested again; its cost may be missing from every report."""

    name: ClassVar[str] = "answer_lost"


@dataclass(slots=True)
class ApiRetry:
    """The agent is waiting to retry its API request. Does not count as a sign of life."""

    name: ClassVar[str] = "api_retry"
    attempt: int
    max_retries: int
    delay_ms: int
    status: int | None = None  # HTTP status; None: no response
    error: str = ""


@dataclass(slots=True)
class ApiFailure:
    """An API error as classified by the agent; the agent's final report follows."""

    name: ClassVar[str] = "api_failure"
    category: str
    message: str


@dataclass(slots=True)
class RateLimit:
    """The rate limit of a subscription account."""

    name: ClassVar[str] = "rate_limit"
    status: str  # allowed_warning, rejected
    resets_at: float | None = None  # Unix time, seconds
    limit: str = ""  # five_hour, seven_day, …
    utilization: float | None = None  # 0 to 1


@dataclass(slots=True)
class ModelFallback:
    """The agent switched to another model."""

    name: ClassVar[str] = "model_fallback"
    original: str
    fallback: str
    trigger: str = ""


@dataclass(slots=True)
class SubagentProgress:
    """A subagent started, progressed or finished."""

    name: ClassVar[str] = "subagent"
    task_id: str
    status: str  # started, progress, or the final status that the agent reports
    description: str = ""


@dataclass(slots=True)
class Interrupted:
    """The agent was interrupted; it may exit without a final report."""

    name: ClassVar[str] = "interrupted"
    amid_tool: bool = False  # during tool calls: their results are no longer sent to the model


MCP_SERVER = "mcp_server"  # notification topic: an MCP server is unavailable to the turn


@dataclass(slots=True)
class Notification:
    """Any other message of the agent about itself."""

    name: ClassVar[str] = "notification"
    topic: str
    text: str = ""


@dataclass(slots=True)
class Heartbeat:
    """A sign of life without content, neither numbered nor published."""

    name: ClassVar[str] = "heartbeat"


@dataclass(slots=True)
class Malformed:
    """An unreadable line, cut to 500 characters."""

    name: ClassVar[str] = "malformed"
    text: str


@dataclass(slots=True)
class AdapterFault:
    """The agent's adapter failed: the turn fails, whatever the agent reports."""

    name: ClassVar[str] = "adapter_fault"
    message: str


@dataclass(slots=True)
class Report:
    """The agent's final report on a turn.

    An absent field is None or blank and proves nothing; `unread` names fields that should have been present.
    """

    subtype: str  # as the agent reports it: success, error_max_turns, …; blank: unreadable
    is_error: bool = False
    text: str = ""
    structured_output: object = None
    by_model: Mapping[str, ModelUsage] = field(default_factory=dict)  # since the agent was started
    contradictory: bool = False  # its two token counts contradict each other
    of_session: bool = False  # `by_model` may include earlier processes of a resumed session
    unread: tuple[str, ...] = ()  # fields that are missing or have an unknown form
    cut_short: bool | None = None  # the last answer broke off in mid-message; None: not reported
    num_turns: int | None = None
    duration_ms: int | None = None
    duration_api_ms: int | None = None
    stop_reason: str | None = None
    terminal_reason: str | None = None
    api_status: int | None = None  # HTTP status of the error that ended the turn
    errors: tuple[str, ...] = ()
    denied_tools: tuple[str, ...] = ()  # tools denied by the permission mode


@dataclass(slots=True)
class TurnCompleted:
    """The agent reports success; the adapter's judgement decides whether it is one."""

    name: ClassVar[str] = "turn_completed"
    report: Report


@dataclass(slots=True)
class TurnFailed:
    """The agent reports a failure."""

    name: ClassVar[str] = "turn_failed"
    report: Report


Event = (
    SessionStarted
    | AssistantText
    | AnswerBegun
    | Thinking
    | ToolStarted
    | ToolFinished
    | ToolInvoked
    | AgentStatus
    | TokenUsage
    | AnswerLost
    | ApiRetry
    | ApiFailure
    | RateLimit
    | ModelFallback
    | SubagentProgress
    | Interrupted
    | Notification
    | Heartbeat
    | Malformed
    | AdapterFault
    | TurnCompleted
    | TurnFailed
)

HEARTBEAT = Heartbeat()

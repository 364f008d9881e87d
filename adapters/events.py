"""What happens in a turn, as the adapters report it: one class an event, the same for every agent.

To add an event: add a class here and to `Event`, and emit it from an adapter's parser, whose docstring says where;
until then it is a `Notification` or a sign of life. It then reaches watchers by its `name`, with its fields. Add a
handler to `adapters.turn_state` if it changes the state of the turn, and one to `workers.cli.live_view` if people
should see it.

The classes are not frozen: building a frozen one costs four times as much, and this is the hot path. Nobody
changes an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from adapters.usage import ModelUsage, Tokens


@dataclass(slots=True)
class SessionStarted:
    """The agent is up and has a session."""

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
    """The model answers in pieces, or may answer in an unknown form; the text follows once it is whole."""

    name: ClassVar[str] = "answer_begun"


@dataclass(slots=True)
class Thinking:
    """The model's reasoning, as far as the agent shows it."""

    name: ClassVar[str] = "thinking"
    text: str
    subagent: bool = False


@dataclass(slots=True)
class ToolStarted:
    """A tool call began."""

    name: ClassVar[str] = "tool_started"
    tool_use_id: str
    tool: str
    summary: str = ""  # the command, path or pattern: one line, at most 200 characters
    subagent: bool = False


@dataclass(slots=True)
class ToolFinished:
    """A tool call ended."""

    name: ClassVar[str] = "tool_finished"
    tool_use_id: str
    tool: str
    duration_ms: int | None = None  # None when the start was not seen live
    error: str | None = None  # at most 2048 bytes
    output: str = ""  # how what it gave begins, at most 300 characters; of an error, nothing


@dataclass(slots=True)
class ToolInvoked:
    """A tool call has been done, with what went in and what came out; only live turns tell it."""

    name: ClassVar[str] = "tool_invoked"
    tool_use_id: str
    tool: str
    params: object  # JSON; long texts and lists are cut
    result: object  # likewise


@dataclass(slots=True)
class AgentStatus:
    """Where a live turn's agent stands: provisioning, ready for what is said to it, or error."""

    name: ClassVar[str] = "agent_status"
    status: str
    detail: str = ""


@dataclass(slots=True)
class TokenUsage:
    """The model answered one request, or more of its answer became known."""

    name: ClassVar[str] = "token_usage"
    model: str
    added: Tokens  # since the last event; sums up to the turn's running estimate
    output_known: bool = False  # False: the output is a placeholder
    api_duration_ms: int | None = None  # from the request to the first block of its answer, if seen live


@dataclass(slots=True)
class AnswerLost:
    """An answer of the model broke off and was asked for again; what it cost may stand in no account."""

    name: ClassVar[str] = "answer_lost"


@dataclass(slots=True)
class ApiRetry:
    """The agent waits to try its API again. This does not count as a sign of life."""

    name: ClassVar[str] = "api_retry"
    attempt: int
    max_retries: int
    delay_ms: int
    status: int | None = None  # HTTP status; None: no answer at all
    error: str = ""


@dataclass(slots=True)
class ApiFailure:
    """The API's error as the agent classified it; the agent's final report follows."""

    name: ClassVar[str] = "api_failure"
    category: str
    message: str


@dataclass(slots=True)
class RateLimit:
    """The account's limit, on subscription logins."""

    name: ClassVar[str] = "rate_limit"
    status: str  # allowed_warning, rejected
    resets_at: float | None = None  # Unix time, seconds
    limit: str = ""  # five_hour, seven_day, …
    utilization: float | None = None  # 0 to 1


@dataclass(slots=True)
class ModelFallback:
    """The agent went on with another model."""

    name: ClassVar[str] = "model_fallback"
    original: str
    fallback: str
    trigger: str = ""


@dataclass(slots=True)
class SubagentProgress:
    """A subagent started, went on or ended."""

    name: ClassVar[str] = "subagent"
    task_id: str
    status: str  # started, progress, or what the agent says of its end
    description: str = ""


@dataclass(slots=True)
class Interrupted:
    """The agent was told to stop; it may end without a final word."""

    name: ClassVar[str] = "interrupted"
    amid_tool: bool = False  # it had its tools' results to send, and sends them no more


MCP_SERVER = "mcp_server"  # the topic of a notification: one that the turn has to do without


@dataclass(slots=True)
class Notification:
    """Something else that the agent said about itself."""

    name: ClassVar[str] = "notification"
    topic: str
    text: str = ""


@dataclass(slots=True)
class Heartbeat:
    """A sign of life without content. It is neither numbered nor published."""

    name: ClassVar[str] = "heartbeat"


@dataclass(slots=True)
class Malformed:
    """A line that could not be read, cut to 500 characters."""

    name: ClassVar[str] = "malformed"
    text: str


@dataclass(slots=True)
class AdapterFault:
    """The agent's adapter could not do its part: the turn fails, whatever the agent says of its end."""

    name: ClassVar[str] = "adapter_fault"
    message: str


@dataclass(slots=True)
class Report:
    """The agent's own final word on a turn.

    What it does not say is None or blank, and no evidence of anything; `unread` names what it should have said.
    """

    subtype: str  # the agent's own word: success, error_max_turns, …; blank: none that could be read
    is_error: bool = False
    text: str = ""
    structured_output: object = None
    by_model: Mapping[str, ModelUsage] = field(default_factory=dict)  # since the agent was started
    contradictory: bool = False  # it counts the tokens in two ways, and they cannot both be right
    of_session: bool = False  # `by_model` may count earlier processes of a session that was resumed, too
    unread: tuple[str, ...] = ()  # fields that are missing, or in no form that is known
    cut_short: bool | None = None  # its last answer broke off in mid-message; None: it does not tell
    num_turns: int | None = None
    duration_ms: int | None = None
    duration_api_ms: int | None = None
    stop_reason: str | None = None
    terminal_reason: str | None = None
    api_status: int | None = None  # HTTP status of the error that ended the turn
    errors: tuple[str, ...] = ()
    denied_tools: tuple[str, ...] = ()  # tools that the permission mode denied


@dataclass(slots=True)
class TurnCompleted:
    """The agent reports success. Whether that is true, the adapter's judgement says."""

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

"""What the scripted model API will say: frozen values, built in Python or loaded from JSON.

    ScriptBook
      Script                 one turn, found by its API key, a marker or a keyword
        replies              what the main loop gets, in order
        Branch               what a subagent or another model gets, in order
          Reply              one assistant message: blocks, usage, pace, hold, fault
          HttpError          one refused request

A list that is used up answers HTTP 400 and names the script: a turn that asks more often than
its author expected is a fact to see, not one to cover by repeating the last reply.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

PLACEHOLDER_OUTPUT_TOKENS = 1  # what `message_start` reports, and what a message that never ends is billed


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one message or a sum of messages. `cache_creation_1h` is a part of `cache_creation`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_creation: int = 0
    cache_creation_1h: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_creation + other.cache_creation,
            self.cache_creation_1h + other.cache_creation_1h,
        )


@dataclass(frozen=True, slots=True)
class Text:
    """A text block."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Thinking:
    """A thinking block; clients send the signature back unread."""

    thinking: str
    signature: str = "c2lnbmF0dXJl"
    kind: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of one tool. Several in one reply are parallel calls. The server makes up the id."""

    name: str
    input: dict[str, JsonValue]
    kind: Literal["tool_use"] = "tool_use"


Block = Annotated[Text | Thinking | ToolUse, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Hold:
    """A gate inside a reply: wait there until the test releases it. One that is never released is a hang."""

    gate: str  # name of the gate, one per server
    after_events: int = 0  # 0: before the status line; N: when N SSE events are sent


@dataclass(frozen=True, slots=True)
class Fault:
    """How a stream breaks after `after_events` SSE events; a non-streamed reply breaks before its body.

    `cut` ends the body cleanly and leaves out the other events; `reset` is a TCP RST;
    `error` is an SSE `error` event.
    """

    kind: Literal["cut", "reset", "error"]
    after_events: int
    error_type: str = "overloaded_error"  # `error` only
    message: str = "Overloaded"  # `error` only


@dataclass(frozen=True, slots=True)
class Reply:
    """One assistant message and how it travels."""

    blocks: tuple[Block, ...]
    usage: Usage = Usage(input=10, output=5)
    stop_reason: str | None = None  # None: `tool_use` if a tool is called, else `end_turn`
    stop_details: dict[str, JsonValue] | None = None  # the API's explanation of a `refusal`
    chunks: int = 1  # deltas per block
    delay_s: float = 0.0  # before each SSE event; before the body of a non-streamed reply
    headers: dict[str, str] = field(default_factory=dict)  # added to the response
    hold: Hold | None = None
    fault: Fault | None = None
    kind: Literal["reply"] = "reply"


@dataclass(frozen=True, slots=True)
class HttpError:
    """A request that the API refuses, and bills nothing for."""

    status: int
    type: str  # the `error.type` of the body
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    hold: Hold | None = None  # only `after_events=0` makes sense
    kind: Literal["http_error"] = "http_error"


Answer = Annotated[Reply | HttpError, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Branch:
    """Replies for the requests of one script that match everything that is set here."""

    replies: tuple[Answer, ...]
    name: str = "branch"  # as it stands on the bill
    prompt: str | None = None  # substring of the conversation's first user message (a subagent's prompt)
    model: str | None = None  # substring of the requested model


SIDE_REPLY = Reply((Text('{"title": "Scripted turn"}'),), Usage(input=8, output=4))


@dataclass(frozen=True, slots=True)
class Script:
    """One turn, found by its API key, else by `[script:NAME]` in a prompt, else by its keyword in the first."""

    name: str
    replies: tuple[Answer, ...]
    branches: tuple[Branch, ...] = ()  # tried in order, before the main replies; subagents need one
    key: str | None = None  # API key or bearer token
    keyword: str | None = None  # substring of a prompt
    per_session: bool = False  # True: every session starts from the first reply; a demo is run more than once
    side_reply: Reply = SIDE_REPLY  # to any number of requests beside the conversation: titles, quota checks


@dataclass(frozen=True, slots=True)
class ScriptBook:
    """All scripts of one server. With a single script everything goes to it, whatever the key or prompt.

    Raises:
        ValueError: two scripts have one name.
    """

    # A typo in a JSON script must not become a silent default. Holds for the dataclasses inside, too.
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    scripts: tuple[Script, ...]

    def __post_init__(self) -> None:
        names = [script.name for script in self.scripts]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"script names used twice: {', '.join(sorted(twice))}")


_ADAPTER = TypeAdapter(ScriptBook)


def load_scripts(path: Path) -> ScriptBook:
    """Read a script book from a JSON file.

    Raises:
        pydantic.ValidationError: naming the field that is wrong.
        OSError: the file cannot be read.
    """
    return _ADAPTER.validate_json(path.read_bytes())


def dump_scripts(book: ScriptBook) -> bytes:
    """The JSON that `load_scripts` reads."""
    return _ADAPTER.dump_json(book, indent=2)

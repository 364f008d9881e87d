"""What a producer asks for: one JSON document, validated field by field."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from adapters.protocol.after import After
from adapters.protocol.output_schema import checked_schema
from adapters.protocol.task import Task, with_prompt
from adapters.protocol.validation_errors import read_document
from adapters.protocol.workspace import Collect, Mounts, Worktree, absolute, distinct, prompt_section, was_made
from adapters.requirements import Needs

AUTO = "auto"  # in the place of an agent's name
MAX_PROMPT_BYTES = 10 * 1024 * 1024  # what Claude Code reads from stdin (measured)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
TURN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$"  # a spool is named after it and the number of the attempt
TurnId = Annotated[str, StringConstraints(pattern=TURN_ID)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]{1,128}$")]
_TRACEPARENT = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"  # https://www.w3.org/TR/trace-context/
_MOST = 2**53 - 1  # the greatest integer that every JSON reader keeps exact
Milliseconds = Annotated[int, Field(ge=1, le=_MOST)]


def _encoded(text: str) -> bytes:
    """The text as a process gets it."""
    if "\0" in text:
        raise ValueError("holds a NUL character, which no process can be given; remove it")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode (lone surrogate at character {error.start})") from error


def _readable_prompt(prompt: str) -> str:
    size = len(_encoded(prompt))
    if not prompt.strip():
        raise ValueError("is empty; say what the agent should do")
    if size > MAX_PROMPT_BYTES:
        raise ValueError(f"is {size:,} bytes long, the limit is {MAX_PROMPT_BYTES:,}; put it in a file")
    return prompt


def _absolute_or_none(path: str) -> str:
    return absolute(path) if path else ""


def _valid_traceparent(value: str) -> str:
    _, trace_id, span_id, _ = value.split("-")
    if not int(trace_id, 16) or not int(span_id, 16):
        raise ValueError("has an id that is all zeros")
    return value


Traceparent = Annotated[str, StringConstraints(pattern=_TRACEPARENT), AfterValidator(_valid_traceparent)]
_TRACEPARENT_HEADER: TypeAdapter[str] = TypeAdapter(Traceparent)


def read_traceparent(header: object) -> str | None:
    """What a producer's tracing has put into a header; None for what is no traceparent: that is to be ignored."""
    try:
        return _TRACEPARENT_HEADER.validate_python(header)
    except ValidationError:
        return None


def _nothing_before(after: After | None) -> After | None:
    if after is not None:
        raise ValueError("takes from the result of the task before, and none came: is the signature immutable?")
    return after


def _what_and_where(schema: dict[str, Any]) -> None:
    """Have the JSON Schema ask for a prompt or a task, and for a workspace or what makes one."""
    del schema["required"]
    either = [{"required": [name]} for name in ("prompt", "task")]
    schema["oneOf"] = [*either, {"required": ["after"], "not": {"anyOf": either}}]
    schema["anyOf"] = [{"required": [name]} for name in ("workspace", "mounts", "worktree", "after")]


class TurnRequest(BaseModel):
    """One turn of a coding agent. Limits that are left out are the worker's defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_what_and_where)

    version: Literal[1] = Field(default=1, description="Of this document.")
    turn_id: TurnId = Field(
        default_factory=lambda: str(uuid.uuid4()),
        description="Idempotency key: sent twice, the turn runs once. Left out, it is the Celery task's id.",
    )
    prompt: Annotated[str, AfterValidator(_readable_prompt)] = Field(
        description="What to do. Reaches the agent on its standard input, at most 10 MiB of UTF-8."
    )
    task: Task | None = Field(
        default=None, exclude=True, description="In the place of `prompt`, which is made of it: see below."
    )
    after: Annotated[After | None, AfterValidator(_nothing_before)] = Field(
        default=None,
        exclude=True,
        description="What it takes from the result of the task before it in a chain; see above.",
    )
    workspace: Annotated[str, AfterValidator(_absolute_or_none)] = Field(
        default="",
        description="Absolute path of an existing directory on the host, the agent's working directory; "
        "left out if the turn brings one, with `mounts` or `worktree`.",
    )
    mounts: Annotated[Mounts, AfterValidator(distinct)] = Field(
        default=(), description="Make a workspace for this turn: copies of these files of the worker's machine."
    )
    worktree: Worktree | None = Field(
        default=None, description="Make a workspace for this turn: a git worktree of a repository on the host."
    )
    collect: Collect | None = Field(
        default=None, description="What of a workspace that the turn brings goes into its result."
    )
    keep_workspace: bool = Field(
        default=False,
        description="Keep the workspace that the turn brings, for turns that go on in its session; "
        "`workspace` of the result says where. Else it is removed when the turn is settled.",
    )
    agent: Name = Field(
        default="claude-code",
        description="Which adapter runs the turn; `auto`: the worker chooses a healthy one that meets `needs`.",
    )
    needs: Needs | None = Field(
        default=None, description="What the agent has to be able to do, and who may be billed; see below."
    )
    plan: bool = Field(
        default=False,
        description="true: the agent changes nothing, and plans what the prompt asks for; the result has `plan`.",
    )
    host: Name | None = Field(default=None, description="Where to run; left out, the worker chooses.")
    host_labels: dict[Name, Label] = Field(
        default={}, description="Run on a host that has all of these labels; left out, on any."
    )
    failure: Literal["raise", "return"] = Field(
        default="raise",
        description="What a failed turn is to Celery: a failed task, or one that returns its result.",
    )
    on_host_lost: Literal["same_host", "any_host", "never"] = Field(
        default="same_host",
        description="Where the next attempt runs after a host was lost: out of reach until it had ended the turn.",
    )
    session_id: Name | None = Field(
        default=None, description="Continue this session. It must be known to the ledger."
    )
    labels: dict[Name, Label] = Field(default={}, description="For accounting: project, team, …")
    producer: Name = Field(
        default="default", description="Who asks: turns that wait are shared out evenly over producers."
    )
    priority: Annotated[int, Field(ge=-9, le=9)] = Field(
        default=0, description="Of the turns of one producer that wait, those with a higher one start first."
    )
    env: tuple[EnvName, ...] = Field(
        default=(), description="Names of the worker's environment variables that this turn may see."
    )
    options: dict[str, JsonValue] = Field(default={}, description="The agent's own options; see its docs.")
    output_schema: Annotated[dict[str, JsonValue], AfterValidator(checked_schema)] | None = Field(
        default=None, description="JSON Schema of the structured output that the agent has to give."
    )
    turn_timeout_ms: Milliseconds | None = Field(default=None, description="For one attempt.")
    read_timeout_ms: Milliseconds | None = Field(default=None, description="Until the first event.")
    stall_timeout_ms: Annotated[int, Field(ge=0, le=_MOST)] | None = Field(
        default=None, description="Between two events; 0 turns it off."
    )
    deadline: AwareDatetime | None = Field(
        default=None,
        description="The turn ends by then, attempts and waits included; with a UTC offset. An agent that can is "
        "asked to end by itself a little earlier (`agent.soft_stop_ms`).",
    )
    max_total_tokens: Annotated[int, Field(ge=1, le=_MOST)] | None = Field(
        default=None, description="All billed tokens of an attempt, cached ones included."
    )
    max_cost_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Cost of an attempt in US dollars."
    )
    traceparent: Traceparent | None = Field(
        default=None,
        description="The producer's span (W3C Trace Context); left out, the Celery header of that name.",
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, description="How often it is tried at most."
    )
    max_paid_retries: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="How often it is tried again after attempts that were billed and failed in the same way; "
        "0: never after one that was billed.",
    )
    max_retry_backoff_ms: Milliseconds | None = Field(
        default=None, description="Ceiling of the delays between attempts."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_task(cls, document: Any) -> Any:
        return with_prompt(document) if isinstance(document, Mapping) else document

    @model_validator(mode="after")
    def _one_workspace(self) -> Self:
        if fault := self._workspace_fault():
            name, text = fault
            detail = InitErrorDetails(type=PydanticCustomError("workspace", text), loc=(name,), input=None)
            raise ValidationError.from_exception_data("TurnRequest", [detail])
        return self

    def _workspace_fault(self) -> tuple[str, str] | None:
        """Which field speaks against another one, and how."""
        if not self.brings_workspace:
            return self._fault_of_existing_workspace()
        if self.workspace:
            return "workspace", "is made by mounts or a worktree; leave either out"
        if self.mounts and self.worktree is not None:
            return "mounts", "cannot be given with a worktree; leave either out"
        if self.session_id is not None:
            return "session_id", "a session goes on in its own workspace only: name that one as workspace"
        return None

    def _fault_of_existing_workspace(self) -> tuple[str, str] | None:
        if not self.workspace:
            return "workspace", "is required, unless mounts or a worktree bring one"
        if self.keep_workspace:
            return "keep_workspace", "is for a workspace that the turn brings, with mounts or a worktree"
        if self.collect is not None and not was_made(self.workspace):
            return "collect", "is for a workspace that the turn brings, or that an earlier one has brought"
        return None

    @property
    def brings_workspace(self) -> bool:
        """Whether its workspace is to be made."""
        return bool(self.mounts) or self.worktree is not None

    @property
    def directory(self) -> str:
        """What has to be on its host before: its workspace, or the repository of its worktree; blank: nothing."""
        return self.workspace if self.worktree is None else self.worktree.repository

    def working_in(self, workspace: str) -> Self:
        """The request, with the workspace that was made for it, and with a prompt that says so."""
        section = prompt_section(workspace, self.mounts, self.worktree, self.collect)
        return self.model_copy(update={"workspace": workspace, "prompt": f"{self.prompt}\n\n{section}"})

    @model_validator(mode="after")
    def _one_kind_of_output(self) -> Self:
        if self.plan and self.output_schema is not None:
            raise ValueError("plan and output_schema cannot be combined: a plan has a form of its own")
        return self

    @property
    def deadline_at(self) -> float | None:
        """The deadline as Unix time in seconds."""
        return self.deadline.timestamp() if isinstance(self.deadline, datetime) else None

    @classmethod
    def parse(cls, document: object, *, turn_id: str | None = None) -> Self:
        """Validate a producer's document; `turn_id` fills in for a missing one.

        Raises InvalidRequest with every faulty field named.
        """
        return read_document(cls, document, turn_id=turn_id)

"""A producer's request for a turn: one JSON document, validated field by field."""

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

from adapters.isolation import Isolation, Network
from adapters.protocol.after import After
from adapters.protocol.output_schema import checked_schema
from adapters.protocol.resources import Cpus, Disk, Memory, Processes
from adapters.protocol.task import Task, with_prompt
from adapters.protocol.validation_errors import read_document
from adapters.protocol.workspace import Collect, Mounts, Worktree, absolute, distinct, prompt_section, was_made
from adapters.requirements import Needs

AUTO = "auto"  # instead of an agent's name
MAX_PROMPT_BYTES = 10 * 1024 * 1024  # the most that Claude Code reads from stdin (measured)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
TURN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$"  # a spool is named after it and the attempt's number
TurnId = Annotated[str, StringConstraints(pattern=TURN_ID)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]{1,128}$")]
_TRACEPARENT = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"  # https://www.w3.org/TR/trace-context/
_MOST = 2**53 - 1  # the largest integer that every JSON reader represents exactly
Milliseconds = Annotated[int, Field(ge=1, le=_MOST)]


def _encoded(text: str) -> bytes:
    """Return the text as a process receives it. Raise ValueError if that is impossible."""
    if "\0" in text:
        raise ValueError("contains a NUL character, which cannot be passed to a process; remove it")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode (lone surrogate at character {error.start})") from error


def _readable_prompt(prompt: str) -> str:
    size = len(_encoded(prompt))
    if not prompt.strip():
        raise ValueError("is empty; say what the agent should do")
    if size > MAX_PROMPT_BYTES:
        raise ValueError(f"is {size:,} bytes long; the limit is {MAX_PROMPT_BYTES:,}. Put it in a file")
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
    """Return the traceparent of a header, or None if it is not valid: it must be ignored then."""
    try:
        return _TRACEPARENT_HEADER.validate_python(header)
    except ValidationError:
        return None


def _nothing_before(after: After | None) -> After | None:
    if after is not None:
        raise ValueError("needs the preceding task's result, but there is none: is the signature immutable?")
    return after


def _what_and_where(schema: dict[str, Any]) -> None:
    """Make the JSON Schema require a prompt or a task, and a workspace or what makes one."""
    del schema["required"]
    either = [{"required": [name]} for name in ("prompt", "task")]
    schema["oneOf"] = [*either, {"required": ["after"], "not": {"anyOf": either}}]
    schema["anyOf"] = [{"required": [name]} for name in ("workspace", "mounts", "worktree", "after")]


class TurnRequest(BaseModel):
    """One turn of a coding agent. Omitted limits default to the worker's."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_what_and_where)

    version: Literal[1] = Field(default=1, description="Version of this document format.")
    turn_id: TurnId = Field(
        default_factory=lambda: str(uuid.uuid4()),
        description="Idempotency key: a turn that is sent twice runs once. Default: the Celery task's id.",
    )
    prompt: Annotated[str, AfterValidator(_readable_prompt)] = Field(
        description="What to do. Passed to the agent on stdin; at most 10 MiB of UTF-8."
    )
    task: Task | None = Field(
        default=None, exclude=True, description="Replaces `prompt`, which is built from it; see below."
    )
    after: Annotated[After | None, AfterValidator(_nothing_before)] = Field(
        default=None,
        exclude=True,
        description="What to take from the result of the preceding task in a chain; see above.",
    )
    workspace: Annotated[str, AfterValidator(_absolute_or_none)] = Field(
        default="",
        description="Absolute path of an existing directory on the host, the agent's working directory; "
        "omit it with `mounts` or `worktree`, which create one.",
    )
    mounts: Annotated[Mounts, AfterValidator(distinct)] = Field(
        default=(), description="Create a per-turn workspace with copies of these files from the worker's machine."
    )
    worktree: Worktree | None = Field(
        default=None, description="Create a per-turn workspace: a git worktree of a repository on the host."
    )
    collect: Collect | None = Field(
        default=None, description="What to return in the result from a per-turn workspace."
    )
    keep_workspace: bool = Field(
        default=False,
        description="Keep the per-turn workspace for later turns in the same agent session; the result's "
        "`workspace` is its path. Default: remove it when the turn is settled.",
    )
    agent: Name = Field(
        default="claude-code",
        description="Agent that runs the turn; `auto`: the worker chooses a healthy one that meets `needs`.",
    )
    needs: Needs | None = Field(
        default=None, description="What the agent must be able to do, and the accepted billing modes; see below."
    )
    plan: bool = Field(
        default=False,
        description="true: the agent plans what the prompt asks for, and changes nothing; the result has `plan`.",
    )
    host: Name | None = Field(default=None, description="Host to run on. Default: the worker chooses.")
    host_labels: dict[Name, Label] = Field(
        default={}, description="Run on a host that has all of these labels. Default: any host."
    )
    isolation: Isolation | None = Field(
        default=None,
        description="Isolation that the turn needs: `namespace` or `sandbox`. Hosts without it are not used. "
        "Default: the host's own; a weaker level has no effect.",
    )
    sandbox_network: Network | None = Field(
        default=None,
        description="`none`: run in a sandbox without network access. Agents that call an API cannot work there. "
        "Default: the host's own; `full` has no effect.",
    )
    max_memory: Memory | None = Field(
        default=None,
        description="Limit on the memory of the agent and its tools together, in bytes or as `4GiB`. Like the "
        "following, it makes `isolation` at least `namespace`.",
    )
    max_processes: Processes | None = Field(
        default=None, description="Limit on the number of processes of the agent and its tools together."
    )
    max_cpus: Cpus | None = Field(
        default=None,
        description="CPU limit for the agent and its tools together, in cores, such as `1.5`. Hosts without "
        "systemd (cgroup v2) cannot enforce it, and are not used.",
    )
    max_disk: Disk | None = Field(
        default=None,
        description="Limit on the files in the workspace that the turn brings, in bytes or as `10GiB`. Needs "
        "`mounts` or `worktree`, or the workspace of a turn that had one of them.",
    )
    failure: Literal["raise", "return"] = Field(
        default="raise",
        description="How a failed turn appears to Celery: as a failed task, or as one that returns its result.",
    )
    on_host_lost: Literal["same_host", "any_host", "never"] = Field(
        default="same_host",
        description="Where the next attempt runs after `host_lost`; `never`: there is none.",
    )
    session_id: Name | None = Field(
        default=None, description="Agent session to continue. It must be in the ledger."
    )
    labels: dict[Name, Label] = Field(default={}, description="Labels for accounting: project, team, …")
    producer: Name = Field(
        default="default", description="Name of the sender; waiting turns are scheduled evenly across producers."
    )
    priority: Annotated[int, Field(ge=-9, le=9)] = Field(
        default=0, description="Of one producer's waiting turns, those with a higher priority start first."
    )
    env: tuple[EnvName, ...] = Field(
        default=(), description="Names of the worker's environment variables to pass to this turn."
    )
    options: dict[str, JsonValue] = Field(default={}, description="The agent's options; see its documentation.")
    output_schema: Annotated[dict[str, JsonValue], AfterValidator(checked_schema)] | None = Field(
        default=None, description="JSON Schema of the structured output that the agent must return."
    )
    turn_timeout_ms: Milliseconds | None = Field(default=None, description="Limit for one attempt.")
    read_timeout_ms: Milliseconds | None = Field(default=None, description="Limit until the first event.")
    stall_timeout_ms: Annotated[int, Field(ge=0, le=_MOST)] | None = Field(
        default=None, description="Limit between two events; 0 disables it."
    )
    deadline: AwareDatetime | None = Field(
        default=None,
        description="Time by which the turn ends, including all attempts and waits; needs a UTC offset. An agent "
        "that supports it is asked to finish a little earlier (`agent.soft_stop_ms`).",
    )
    max_total_tokens: Annotated[int, Field(ge=1, le=_MOST)] | None = Field(
        default=None, description="Limit on an attempt's billed tokens, including cached ones."
    )
    max_cost_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Limit on an attempt's cost in US dollars."
    )
    traceparent: Traceparent | None = Field(
        default=None,
        description="The producer's span (W3C Trace Context). Default: the Celery header of that name.",
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, description="Maximum number of attempts."
    )
    max_paid_retries: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="Maximum number of retries after attempts that were billed and failed in the same way; "
        "0: no retry after a billed attempt.",
    )
    max_retry_backoff_ms: Milliseconds | None = Field(default=None, description="Maximum delay between attempts.")

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
        """Return the field at fault and what is wrong with it, or None."""
        if not self.brings_workspace:
            return self._fault_of_existing_workspace()
        if self.workspace:
            return "workspace", "conflicts with mounts or worktree, which create one; give only one of them"
        if self.mounts and self.worktree is not None:
            return "mounts", "cannot be combined with worktree; give only one of them"
        if self.session_id is not None:
            return "session_id", "an agent session can continue only in its own workspace; set workspace to that"
        return None

    def _fault_of_existing_workspace(self) -> tuple[str, str] | None:
        if not self.workspace:
            return "workspace", "is required unless mounts or worktree create one"
        if self.keep_workspace:
            return "keep_workspace", "applies only to a per-turn workspace, created with mounts or worktree"
        if self.max_disk is not None and not self.has_own_workspace:
            return "max_disk", "applies only to a per-turn workspace, of this turn or an earlier one"
        if self.collect is not None and not self.has_own_workspace:
            return "collect", "applies only to a per-turn workspace, of this turn or an earlier one"
        return None

    @property
    def brings_workspace(self) -> bool:
        """True if the worker must make its workspace."""
        return bool(self.mounts) or self.worktree is not None

    @property
    def directory(self) -> str:
        """Directory that must exist on its host: its workspace, or its worktree's repository; blank if none."""
        return self.workspace if self.worktree is None else self.worktree.repository

    def working_in(self, workspace: str) -> Self:
        """Return the request with the workspace made for it, and with a prompt that describes it."""
        section = prompt_section(workspace, self.mounts, self.worktree, self.collect)
        return self.model_copy(update={"workspace": workspace, "prompt": f"{self.prompt}\n\n{section}"})

    @model_validator(mode="after")
    def _one_kind_of_output(self) -> Self:
        if self.plan and self.output_schema is not None:
            raise ValueError("plan and output_schema cannot be combined: a plan has its own schema")
        return self

    @property
    def has_own_workspace(self) -> bool:
        """True for a per-turn workspace, of this turn or an earlier one."""
        return self.brings_workspace or was_made(self.workspace)

    @property
    def deadline_at(self) -> float | None:
        """The deadline as Unix time in seconds."""
        return self.deadline.timestamp() if isinstance(self.deadline, datetime) else None

    @classmethod
    def parse(cls, document: object, *, turn_id: str | None = None) -> Self:
        """Validate a producer's document. `turn_id` is used if it has none.

        Raise InvalidRequest, naming every invalid field.
        """
        return read_document(cls, document, turn_id=turn_id)

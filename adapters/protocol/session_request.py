"""A producer's request to repeat turns until a task is done: one JSON document."""

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
    field_validator,
    model_validator,
)

from adapters.protocol.request import Milliseconds, TurnRequest
from adapters.protocol.validation_errors import read_document

RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,111}$"  # its turns are named after it and their number
MOST_COMMANDS = 20
_MOST_TURNS = 1_000
_MOST = 2**53 - 1


def _runnable(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ValueError("is not a command that a shell can run")
    return command


class SessionRequest(BaseModel):
    """Turns in one agent session, one after another, until the task is done or a limit is reached."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = Field(default=1, description="Version of this document format.")
    run_id: Annotated[str, StringConstraints(pattern=RUN_ID)] = Field(
        default_factory=lambda: str(uuid.uuid4()),
        description="Idempotency key: sent twice, the session of turns runs once. Default: the Celery task's id.",
    )
    turn: TurnRequest = Field(
        description="The first turn, as in the table above, without `turn_id`. Its limits apply to each turn."
    )
    test_commands: Annotated[
        tuple[Annotated[str, AfterValidator(_runnable)], ...], Field(max_length=MOST_COMMANDS)
    ] = Field(
        default=(),
        description="Commands run by `sh` in the workspace after each turn; the task is done when all exit with "
        "0. Default: those of the turn's `task`.",
    )
    check_timeout_ms: Milliseconds = Field(default=600_000, description="Limit for each test command.")
    done_field: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Field of the turn's `output_schema`; the task is done when it is true."
    )
    max_turns: Annotated[int, Field(ge=1, le=_MOST_TURNS)] = Field(
        default=20, description="Maximum number of turns per agent session."
    )
    max_sessions: Annotated[int, Field(ge=0, le=_MOST_TURNS)] = Field(
        default=1,
        description="Maximum number of agent sessions: a fresh one follows one that was lost, failed, or reached "
        "`max_turns`. 0: no maximum, which requires one of the limits below.",
    )
    deadline: AwareDatetime | None = Field(
        default=None, description="Time by which all turns end; needs a UTC offset."
    )
    max_total_tokens: Annotated[int, Field(ge=1, le=_MOST)] | None = Field(
        default=None, description="Limit on the billed tokens of all turns, including cached ones."
    )
    max_cost_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Limit on the cost of all turns in US dollars."
    )

    @model_validator(mode="before")
    @classmethod
    def _commands_of_task(cls, document: Any) -> Any:
        """Keep the test commands of the turn's task, which becomes a prompt."""
        if not isinstance(document, Mapping) or "test_commands" in document:
            return document
        turn = document.get("turn")
        task = turn.get("task") if isinstance(turn, Mapping) else None
        commands = task.get("test_commands") if isinstance(task, Mapping) else None
        return document if commands is None else {**document, "test_commands": commands}

    @field_validator("turn", mode="before")
    @classmethod
    def _names_no_turn(cls, turn: Any) -> Any:
        if isinstance(turn, Mapping) and "turn_id" in turn:
            raise ValueError("turn_id is derived from run_id; leave it out")
        return turn

    @model_validator(mode="after")
    def _can_end(self) -> Self:
        if not self.test_commands and self.done_field is None:
            raise ValueError("needs test_commands (--test) or done_field, which show when the task is done")
        if self.done_field is not None and self.turn.output_schema is None:
            raise ValueError("done_field needs turn.output_schema, which must define it")
        if self.turn.brings_workspace and not self.turn.keep_workspace:
            raise ValueError("a per-turn workspace needs keep_workspace (--keep-workspace): all turns work in it")
        endless = self.deadline is None and self.max_total_tokens is None and self.max_cost_usd is None
        if self.max_sessions == 0 and endless:
            raise ValueError(
                "max_sessions 0 needs a deadline, max_total_tokens or max_cost_usd: otherwise it may never end"
            )
        return self

    @property
    def deadline_at(self) -> float | None:
        """The deadline as Unix time in seconds."""
        return self.deadline.timestamp() if isinstance(self.deadline, datetime) else None

    @classmethod
    def parse(cls, document: object, *, run_id: str | None = None) -> Self:
        """Validate a producer's document. `run_id` is used if it has none.

        Raise InvalidRequest, naming every invalid field.
        """
        return read_document(cls, document, run_id=run_id)

    def document(self) -> dict[str, JsonValue]:
        """Return it as JSON values, without defaults, but always with the agent."""
        fields = self.model_dump(mode="json", exclude_defaults=True, exclude={"turn": {"turn_id"}})
        return {**fields, "run_id": self.run_id, "turn": {**fields["turn"], "agent": self.turn.agent}}

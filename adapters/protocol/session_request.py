"""What a producer asks for when a task is to be worked on until it is done: one JSON document."""

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

RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,111}$"  # its turns are named after it and their numbers
MOST_COMMANDS = 20
_MOST_TURNS = 1_000
_MOST = 2**53 - 1


def _runnable(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ValueError("is no command that a shell could run")
    return command


class SessionRequest(BaseModel):
    """Turns in one agent session, one after the other, until the task is done or a limit ends it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = Field(default=1, description="Of this document.")
    run_id: Annotated[str, StringConstraints(pattern=RUN_ID)] = Field(
        default_factory=lambda: str(uuid.uuid4()),
        description="Idempotency key: sent twice, it runs once. Left out, it is the Celery task's id.",
    )
    turn: TurnRequest = Field(
        description="The first turn, as in the table above but for `turn_id`. Its limits hold for each turn."
    )
    test_commands: Annotated[
        tuple[Annotated[str, AfterValidator(_runnable)], ...], Field(max_length=MOST_COMMANDS)
    ] = Field(
        default=(),
        description="Run by `sh` in the workspace after each turn: done when all of them exit with 0. Left out: "
        "those of the turn's `task`.",
    )
    check_timeout_ms: Milliseconds = Field(default=600_000, description="For each test command.")
    done_field: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="A field of the turn's `output_schema`: done when it is true."
    )
    max_turns: Annotated[int, Field(ge=1, le=_MOST_TURNS)] = Field(default=20, description="In one agent session.")
    max_sessions: Annotated[int, Field(ge=0, le=_MOST_TURNS)] = Field(
        default=1,
        description="Agent sessions: a fresh one follows on one that was lost, failed, or had its `max_turns`. "
        "0: any number, until the deadline or a budget ends it.",
    )
    deadline: AwareDatetime | None = Field(default=None, description="All of it ends by then; with a UTC offset.")
    max_total_tokens: Annotated[int, Field(ge=1, le=_MOST)] | None = Field(
        default=None, description="All billed tokens of all turns, cached ones included."
    )
    max_cost_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Cost of all turns in US dollars."
    )

    @model_validator(mode="before")
    @classmethod
    def _commands_of_task(cls, document: Any) -> Any:
        """The turn becomes a prompt: what its task says of commands is kept here."""
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
            raise ValueError("turn_id is made of run_id; leave it out")
        return turn

    @model_validator(mode="after")
    def _can_end(self) -> Self:
        if not self.test_commands and self.done_field is None:
            raise ValueError("nothing would tell that it is done; give test_commands (--test), or done_field")
        if self.done_field is not None and self.turn.output_schema is None:
            raise ValueError("done_field needs an output_schema in turn, to be a field of")
        if self.turn.brings_workspace and not self.turn.keep_workspace:
            raise ValueError(
                "all turns work in the workspace that turn brings: it needs keep_workspace (--keep-workspace)"
            )
        endless = self.deadline is None and self.max_total_tokens is None and self.max_cost_usd is None
        if self.max_sessions == 0 and endless:
            raise ValueError(
                "max_sessions 0 needs a deadline, max_total_tokens or max_cost_usd: else it may never end"
            )
        return self

    @property
    def deadline_at(self) -> float | None:
        """The deadline as Unix time in seconds."""
        return self.deadline.timestamp() if isinstance(self.deadline, datetime) else None

    @classmethod
    def parse(cls, document: object, *, run_id: str | None = None) -> Self:
        """Validate a producer's document; `run_id` fills in for a missing one.

        Raises InvalidRequest with every faulty field named.
        """
        return read_document(cls, document, run_id=run_id)

    def document(self) -> dict[str, JsonValue]:
        """As JSON values, without what is at its default; the agent is always named."""
        fields = self.model_dump(mode="json", exclude_defaults=True, exclude={"turn": {"turn_id"}})
        return {**fields, "run_id": self.run_id, "turn": {**fields["turn"], "agent": self.turn.agent}}

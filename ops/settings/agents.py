"""Tables `agent`, for all agents, and those of single agents, by their names."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from adapters.contract import Billing
from adapters.protocol.request import Name
from ops.settings.values import Milliseconds, Printable, Version


class AgentSettings(BaseModel):
    """Table `agent`: what holds for every turn that does not say otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Name = Field(default="claude-code", description="The agent of requests that name none.")
    command: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Its program: a path, or a name in the PATH of the worker or host. Left out: `command` of its "
        "own table, else what it is usually called, such as `claude`.",
    )
    turn_timeout_ms: Milliseconds = Field(default=3_600_000, description="For one attempt.")
    read_timeout_ms: Milliseconds = Field(
        default=5_000, description="Until the first event. Raise it where `claude` starts from a cold disk."
    )
    stall_timeout_ms: int = Field(default=300_000, description="Between two events; 0 or less: never.")
    max_concurrent_agents: Annotated[int, Field(ge=1)] = Field(default=10, description="In one worker.")
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(default=5, description="Of one turn.")
    max_paid_retries: Annotated[int, Field(ge=0, le=100)] = Field(
        default=1,
        description="How often a turn is tried again after attempts that were billed and failed in the same way; "
        "the API's own refusals and lost hosts do not count.",
    )
    retry_backoff_ms: Milliseconds = Field(
        default=1_000,
        description="Ceiling of the first delay before another attempt; it doubles from attempt to attempt.",
    )
    max_retry_backoff_ms: Milliseconds = Field(
        default=300_000, description="Ceiling of all delays; each is drawn evenly from 0 to its ceiling."
    )
    stop_grace_ms: Milliseconds = Field(
        default=5_000, description="Between SIGINT, SIGTERM and SIGKILL to an agent that has to end."
    )
    soft_stop_ms: Annotated[int, Field(ge=0)] = Field(
        default=30_000,
        description="At `max_total_tokens` or `max_cost_usd`, an agent that can is asked to end by itself at "
        "its next tool call, and is ended after this. Before a deadline it is asked so early, or a tenth of its "
        "attempt's time if that is less, and is ended at the deadline. 0: ended at once.",
    )
    lease_ms: Annotated[int, Field(ge=1_000)] = Field(
        default=120_000, description="An agent that no worker follows is ended after this."
    )
    spool_retention_ms: Milliseconds = Field(
        default=604_800_000,
        description="A host keeps the remains of turns that this ledger does not know or cannot read for so long.",
    )


class AgentTable(BaseModel):
    """Tables of agents, by their names: what holds for one agent. All else that stands there is its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    command: Printable | None = Field(
        default=None,
        description="Its program: a path, or a name in the PATH of the worker or host. Left out: as it is usually "
        "called.",
    )
    billing: Billing | None = Field(
        default=None,
        description="Who is billed for it, `api`, `subscription` or `free`; left out: as its credentials tell.",
    )
    allow_versions: tuple[Version, ...] = Field(
        default=(),
        description='Versions that are known not to work and are to run all the same, such as `["1.0.128"]`.',
    )

    @property
    def options(self) -> dict[str, JsonValue]:
        """The defaults of its requests' options."""
        return dict(self.__pydantic_extra__)

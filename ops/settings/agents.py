"""Table `agent`, for all agents, and the tables of single agents."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from adapters.contract import Billing
from adapters.protocol.request import Name
from ops.settings.values import Milliseconds, Printable, Version


class AgentSettings(BaseModel):
    """Table `agent`: defaults for every turn that does not override them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Name = Field(default="claude-code", description="Agent for requests that name none.")
    command: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The agent's program: a path, or a name on the PATH of the worker or host. Default: "
        "`command` in the agent's table, else its usual name, such as `claude`.",
    )
    turn_timeout_ms: Milliseconds = Field(default=3_600_000, description="Time limit of one attempt.")
    read_timeout_ms: Milliseconds = Field(
        default=5_000,
        description="Time limit for the first event. Raise it where `claude` starts from a cold disk.",
    )
    stall_timeout_ms: int = Field(default=300_000, description="Time limit between two events; 0 or less: none.")
    max_concurrent_agents: Annotated[int, Field(ge=1)] = Field(
        default=10, description="Maximum number of agents that one worker runs at a time."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        default=5, description="Maximum number of attempts of one turn."
    )
    max_paid_retries: Annotated[int, Field(ge=0, le=100)] = Field(
        default=1,
        description="Maximum number of retries after attempts that were billed and failed the same way; "
        "refusals by the API and `host_lost` do not count.",
    )
    retry_backoff_ms: Milliseconds = Field(
        default=1_000,
        description="Ceiling of the first retry delay; it doubles with each attempt.",
    )
    max_retry_backoff_ms: Milliseconds = Field(
        default=300_000, description="Highest ceiling; each delay is drawn uniformly from 0 to its ceiling."
    )
    stop_grace_ms: Milliseconds = Field(
        default=5_000, description="Time between SIGINT, SIGTERM and SIGKILL when terminating an agent."
    )
    soft_stop_ms: Annotated[int, Field(ge=0)] = Field(
        default=30_000,
        description="At `max_total_tokens` or `max_cost_usd`, an agent that supports it is asked to finish at its "
        "next tool call, and is terminated after this time. Before a deadline, it is asked this long in advance, "
        "or a tenth of the attempt's time if that is less, and is terminated at the deadline. 0: terminate it at "
        "once.",
    )
    lease_ms: Annotated[int, Field(ge=1_000)] = Field(
        default=120_000, description="Time after which an agent that no worker follows is terminated."
    )
    spool_retention_ms: Milliseconds = Field(
        default=604_800_000,
        description="How long a host keeps spools of turns that this ledger does not know or cannot read.",
    )


class AgentTable(BaseModel):
    """Tables of agents, by name: settings of one agent. All other keys are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    command: Printable | None = Field(
        default=None,
        description="Its program: a path, or a name on the PATH of the worker or host. Default: its usual name.",
    )
    billing: Billing | None = Field(
        default=None,
        description="How it is billed: `api`, `subscription` or `free`. Default: derived from its credentials.",
    )
    allow_versions: tuple[Version, ...] = Field(
        default=(),
        description='Unsupported versions to run anyway, such as `["1.0.128"]`.',
    )

    @property
    def options(self) -> dict[str, JsonValue]:
        """Default options of its requests."""
        return dict(self.__pydantic_extra__)

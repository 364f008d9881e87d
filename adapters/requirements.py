"""What a request needs of its agent, whichever that is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9*#+][A-Za-z0-9._+#-]{0,63}$")]


class Needs(BaseModel):
    """Table `needs` of a request: what an agent must offer to run the turn. Sessions stay with their agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_type: Word = Field(default="code", description="One of the agent's `task_types`.")
    language: Word | None = Field(default=None, description="One of the agent's `languages`.")
    live: bool = Field(default=False, description="Can be talked to while it runs.")
    resume: bool = Field(default=False, description="Can continue its session in a later turn.")
    structured_output: bool = Field(default=False, description="Implied by `output_schema`.")
    cost_cap: bool = Field(default=False, description="Ends by itself at `max_cost_usd`.")
    min_context_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Takes so much at once; at least what the prompt is estimated at."
    )
    billing: tuple[Literal["api", "subscription", "free"], ...] = Field(
        default=(), description="Who may be billed, the preferred first; left out: anybody."
    )

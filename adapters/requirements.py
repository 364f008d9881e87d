"""Requirements of a request on its agent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9*#+][A-Za-z0-9._+#-]{0,63}$")]


class Needs(BaseModel):
    """Table `needs` of a request: capabilities an agent must offer to run the turn. Sessions keep their agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_type: Word = Field(default="code", description="One of the agent's `task_types`.")
    language: Word | None = Field(default=None, description="One of the agent's `languages`.")
    live: bool = Field(default=False, description="Accepts input while it runs.")
    resume: bool = Field(default=False, description="Can continue an agent session in a later turn.")
    structured_output: bool = Field(default=False, description="Implied by `output_schema`.")
    cost_cap: bool = Field(default=False, description="Stops itself at `max_cost_usd`.")
    min_context_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Minimum context size in tokens; never less than the prompt's estimated size."
    )
    billing: tuple[Literal["api", "subscription", "free"], ...] = Field(
        default=(), description="Accepted billing modes, preferred first; if omitted, any."
    )

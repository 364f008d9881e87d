"""Inputs that a turn takes from the preceding task of a chain; `adapters.protocol.arguments` applies them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator


class After(BaseModel):
    """Inputs that a turn takes from the preceding task's result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Annotated[str, StringConstraints(pattern=r"^[^.]+(\.[^.]+)*$", max_length=256)] | None = Field(
        default=None,
        description="Append this field of the result to the prompt, or use it as the prompt if the request has "
        "none: `text`, `collected.patch`, `structured_output`. If the result is a string, `text` is that string.",
    )
    session: bool = Field(
        default=False,
        description="Continue that task's agent session, in the workspace it kept or, if none, the request's.",
    )
    workspace: bool = Field(
        default=False,
        description="Run on that task's host, in the workspace it kept or, if none, the request's.",
    )

    @model_validator(mode="after")
    def _takes_something(self) -> Self:
        if self.prompt is None and not self.session and not self.workspace:
            raise ValueError("takes nothing; set prompt to the name of a field, or set session or workspace")
        return self

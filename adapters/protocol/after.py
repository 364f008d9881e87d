"""What a turn takes from the task before it in a chain; `adapters.protocol.arguments` brings both together."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator


class After(BaseModel):
    """What `after` of a request may hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Annotated[str, StringConstraints(pattern=r"^[^.]+(\.[^.]+)*$", max_length=256)] | None = Field(
        default=None,
        description="Add this field of the result to the prompt, or make it the prompt if the request has none: "
        "`text`, `collected.patch`, `structured_output`. Of a result that is a string, `text` is all of it.",
    )
    session: bool = Field(
        default=False,
        description="Continue its agent session, in the workspace it kept; if it kept none, in the request's.",
    )
    workspace: bool = Field(
        default=False,
        description="Run on its host, in the workspace it kept; if it kept none, in the request's.",
    )

    @model_validator(mode="after")
    def _takes_something(self) -> Self:
        if self.prompt is None and not self.session and not self.workspace:
            raise ValueError("takes nothing; name a field as prompt, or set session or workspace")
        return self

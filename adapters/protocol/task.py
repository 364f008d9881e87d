"""A task in parts, and the prompt that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; leave it out, or say something")
    return text


Text = Annotated[str, AfterValidator(_said)]


class Task(BaseModel):
    """What a `task` may hold: what is to be done, and how it is known to be done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: Text = Field(description="What to do: the prompt begins with it.")
    acceptance_criteria: tuple[Text, ...] = Field(default=(), description="What has to be so in the end.")
    test_commands: tuple[Text, ...] = Field(
        default=(), description="Commands that have to succeed. A session of turns runs them itself."
    )
    attached_context: tuple[Text, ...] = Field(default=(), description="What else the agent should know.")

    @property
    def prompt(self) -> str:
        """The description, then a section for each list that is not empty."""
        sections = (
            _section("Acceptance Criteria", self.acceptance_criteria),
            _section("Test Commands", [f"`{command}`" for command in self.test_commands]),
            _section("Additional Context", self.attached_context),
        )
        return "\n\n".join([self.description, *filter(None, sections)])


class _Asked(BaseModel):
    """For errors that name the field of the task within the request."""

    task: Task


def with_prompt(document: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A request with the prompt in the place of its task; one without a task as it is. Raises ValueError."""
    fields = dict(document)
    task = fields.pop("task", None)
    if task is None:
        return fields
    if fields.get("prompt") is not None:
        raise ValueError("give either prompt or task, not both")
    return {**fields, "prompt": _Asked.model_validate({"task": task}).task.prompt}


def _section(title: str, items: Sequence[str]) -> str:
    return "\n".join([f"## {title}", *(f"- {item}" for item in items)]) if items else ""

"""A task in parts, and the prompt built from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; fill it in or leave it out")
    return text


Text = Annotated[str, AfterValidator(_said)]


class Task(BaseModel):
    """A task in parts: what to do, and how to tell that it is done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: Text = Field(description="What to do; the prompt begins with it.")
    acceptance_criteria: tuple[Text, ...] = Field(default=(), description="Conditions that the result must meet.")
    test_commands: tuple[Text, ...] = Field(
        default=(), description="Commands that must succeed. A session of turns runs them itself."
    )
    attached_context: tuple[Text, ...] = Field(default=(), description="Additional context for the agent.")

    @property
    def prompt(self) -> str:
        """The description, then a section for each non-empty list."""
        sections = (
            _section("Acceptance Criteria", self.acceptance_criteria),
            _section("Test Commands", [f"`{command}`" for command in self.test_commands]),
            _section("Additional Context", self.attached_context),
        )
        return "\n\n".join([self.description, *filter(None, sections)])


class _Asked(BaseModel):
    """Wrapper that makes errors name the task's field within the request."""

    task: Task


def with_prompt(document: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the request with its task, if any, replaced by a prompt. Raise ValueError if that is invalid."""
    fields = dict(document)
    task = fields.pop("task", None)
    if task is None:
        return fields
    if fields.get("prompt") is not None:
        raise ValueError("give either prompt or task, not both")
    return {**fields, "prompt": _Asked.model_validate({"task": task}).task.prompt}


def _section(title: str, items: Sequence[str]) -> str:
    return "\n".join([f"## {title}", *(f"- {item}" for item in items)]) if items else ""

"""Plan turns: the agent is asked for a plan instead of work, and its answer is parsed into tasks.

Agents that support structured output get `SCHEMA`; the answers of the others are searched for the same JSON.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from adapters.errors import StructuredOutputMissing
from adapters.protocol.request import TurnRequest
from adapters.protocol.validation_errors import invalid

_FENCED = re.compile(r"^[ \t]*```[A-Za-z]*[ \t]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "additionalProperties": False,  # some APIs accept no other schema
    "required": ["tasks"],
    "properties": {
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "title", "description", "complexity", "dependencies"],
                "properties": {
                    "id": {"type": "string"},
                    "title": {"type": "string"},
                    "description": {"type": "string"},
                    "complexity": {"type": "string", "enum": ["low", "medium", "high"]},
                    "dependencies": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    },
}
_PROMPT = """Plan the following, but do not do it: read whatever you need, change nothing.

Answer with one JSON object and no other text: {{"tasks": [{{"id": "t1", "title": "…", "description": "…", \
"complexity": "low", "dependencies": []}}]}}. The complexity is low, medium or high. The dependencies are ids \
of tasks that must be done first. Order the tasks so that each comes after those it depends on.

{goal}"""


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Id = Annotated[str, Field(min_length=1), BeforeValidator(_text)]
Complexity = Annotated[Literal["low", "medium", "high"], BeforeValidator(_lower)]


class PlannedTask(BaseModel):
    """One task of a plan."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Id
    title: str = Field(min_length=1)
    description: str = ""
    complexity: Complexity = "medium"
    dependencies: tuple[Id, ...] = ()  # ids of tasks that must be done first


class Plan(BaseModel):
    """The result of a plan turn."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    tasks: tuple[PlannedTask, ...] = Field(min_length=1)


def instructed(request: TurnRequest, *, structured_output: bool) -> TurnRequest:
    """Return the request that a plan turn's agent gets; any other request unchanged."""
    if not request.plan:
        return request
    asked: dict[str, object] = {"prompt": _PROMPT.format(goal=request.prompt)}
    if structured_output:
        asked["output_schema"] = SCHEMA
    return request.model_copy(update=asked)


def read_plan(structured: object, text: str) -> Plan:
    """Parse an agent's answer. Raise StructuredOutputMissing, saying what is wrong, if it is not a plan."""
    document = structured if structured is not None else _json_in(text)
    tasks = document.get("tasks") if isinstance(document, Mapping) else None
    if not isinstance(tasks, list):
        raise StructuredOutputMissing("Missing tasks array: the plan is not a JSON object with a list of tasks")
    named = [{"id": f"t{n}", **task} if isinstance(task, dict) else task for n, task in enumerate(tasks, 1)]
    try:
        plan = _with_ids(Plan.model_validate({"tasks": named}))
    except ValidationError as error:
        raise StructuredOutputMissing(f"the plan is not valid: {invalid(error).message}") from error
    _check_references(plan)
    return plan


def _json_in(text: str) -> object:
    """Return the JSON of an answer: in a fence, all of it, or from first to last brace; preferably with tasks."""
    fenced = [block.strip() for block in _FENCED.findall(text)]
    found: list[object] = []
    for candidate in (*reversed(fenced), text.strip(), text[text.find("{") : text.rfind("}") + 1]):
        with contextlib.suppress(orjson.JSONDecodeError):
            found.append(orjson.loads(candidate))
    if not found:
        raise StructuredOutputMissing(
            "Invalid JSON: the answer to a plan turn contains no JSON; see the result's text"
        )
    return next((each for each in found if isinstance(each, dict) and "tasks" in each), found[0])


def _with_ids(plan: Plan) -> Plan:
    """Return the plan with ids in place of dependencies given by title."""
    ids = {task.id for task in plan.tasks}
    titles = Counter(task.title for task in plan.tasks)
    by_title = {task.title: task.id for task in plan.tasks if titles[task.title] == 1}

    def named(task: PlannedTask) -> PlannedTask:
        told = tuple(name if name in ids else by_title.get(name, name) for name in task.dependencies)
        return task.model_copy(update={"dependencies": told})

    return plan.model_copy(update={"tasks": tuple(map(named, plan.tasks))})


def _check_references(plan: Plan) -> None:
    ids = Counter(task.id for task in plan.tasks)
    for task in plan.tasks:
        if ids[task.id] > 1:
            raise StructuredOutputMissing(f"the plan is not valid: two tasks have the id {task.id!r}")
        unknown = [name for name in task.dependencies if name not in ids]
        if unknown:
            raise StructuredOutputMissing(
                f"the plan is not valid: task {task.id!r} depends on {unknown[0]!r}, which does not exist"
            )
    try:
        TopologicalSorter({task.id: task.dependencies for task in plan.tasks}).prepare()
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise StructuredOutputMissing(f"the plan is not valid: its dependencies form a cycle: {circle}") from None

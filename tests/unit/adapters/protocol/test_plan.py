"""Plans: what an agent is asked for one, and what is read of its answers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from adapters.errors import InvalidRequest, StructuredOutputMissing
from adapters.protocol.plan import SCHEMA, instructed, read_plan
from adapters.protocol.request import TurnRequest

FIRST = {"id": "t1", "title": "Read", "description": "all of it", "complexity": "low", "dependencies": []}
SECOND = {"id": "t2", "title": "Write", "description": "", "complexity": "high", "dependencies": ["t1"]}


def request(**fields: Any) -> TurnRequest:
    return TurnRequest.parse({"prompt": "Add {a} cache", "workspace": "/w", **fields})


def answer(*tasks: object) -> str:
    return json.dumps({"tasks": tasks})


def test_plan_turn_asks_for_a_plan_with_its_schema() -> None:
    asked = instructed(request(plan=True), structured_output=True)
    assert asked.prompt.endswith("\n\nAdd {a} cache")
    assert '{"tasks": [{"id": "t1"' in asked.prompt
    assert asked.output_schema == SCHEMA


def test_other_turns_are_asked_as_they_are() -> None:
    plain = request()
    assert instructed(plain, structured_output=True) is plain


def test_plan_has_a_form_of_its_own() -> None:
    with pytest.raises(InvalidRequest, match="plan and output_schema"):
        request(plan=True, output_schema={"type": "object"})


@pytest.mark.parametrize(
    "text",
    [
        answer(FIRST, SECOND),
        f"```json\n{answer(FIRST, SECOND)}\n```",
        f"Here it is:\n\n```\n{answer(FIRST, SECOND)}\n```\nShall I begin?",
        f"Here it is: {answer(FIRST, SECOND)} Shall I begin?",
        f'```json\n{answer(FIRST, SECOND)}\n```\nIts first step gives:\n```json\n{{"read": 3}}\n```',
    ],
    ids=["bare", "fenced", "fenced in prose", "in prose", "beside other JSON"],
)
def test_plan_is_read_from_text_with_its_fences_stripped(text: str) -> None:
    plan = read_plan(None, text)
    assert [task.model_dump(mode="json") for task in plan.tasks] == [FIRST, SECOND]


def test_structured_output_beats_the_text() -> None:
    assert read_plan({"tasks": [FIRST]}, "I have planned it.").tasks[0].title == "Read"


def test_tasks_get_ids_and_defaults_where_the_agent_gave_none() -> None:
    plan = read_plan(None, answer({"title": "a", "estimate": 5}, {"title": "b", "dependencies": ["t1"]}))
    assert [(task.id, task.complexity, task.dependencies) for task in plan.tasks] == [
        ("t1", "medium", ()),
        ("t2", "medium", ("t1",)),
    ]
    assert read_plan(None, answer({"id": 7, "title": "a"}, {"title": "b", "dependencies": [7]})).tasks[0].id == "7"


def test_complexity_is_read_in_any_case_and_dependencies_by_titles_too() -> None:
    tasks = {"title": "a", "complexity": "High"}, {"title": "b", "dependencies": ["a"]}
    plan = read_plan(None, answer(*tasks))
    assert [(task.complexity, task.dependencies) for task in plan.tasks] == [("high", ()), ("medium", ("t1",))]
    with pytest.raises(StructuredOutputMissing, match="'t3' depends on 'a'"):  # which of the two?
        read_plan(None, answer({"title": "a"}, {"title": "a"}, {"title": "c", "dependencies": ["a"]}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("I would rather not.", "Invalid JSON"),
        ("", "Invalid JSON"),
        ('{"tasks": [', "Invalid JSON"),
        ("{}", "Missing tasks array"),
        ("[]", "Missing tasks array"),
        ('{"tasks": {"id": "t1"}}', "Missing tasks array"),
        ('{"tasks": []}', "tasks"),
        ('{"tasks": [5]}', "tasks.0"),
        (answer({"id": "t1"}), "tasks.0.title"),
        (answer({**FIRST, "complexity": "huge"}), "tasks.0.complexity"),
        (answer(FIRST, {**SECOND, "dependencies": ["t9"]}), "'t2' depends on 't9'"),
        (answer(FIRST, FIRST), "two tasks have the id 't1'"),
        (answer({**FIRST, "dependencies": ["t2"]}, SECOND), "form a cycle"),
        (answer({**FIRST, "dependencies": ["t1"]}), "form a cycle"),
    ],
)
def test_answer_that_is_no_plan_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(StructuredOutputMissing, match=says):
        read_plan(None, text)


def test_plan_of_very_many_tasks_is_read_at_once() -> None:
    """The worker reads it on the loop of all its turns, and must not compare each task with each there."""
    tasks = [{"title": "t"}] * 40_000
    began = time.process_time()
    assert len(read_plan({"tasks": tasks}, "").tasks) == len(tasks)
    assert time.process_time() - began < 20  # about one second; compared with each other, over a minute

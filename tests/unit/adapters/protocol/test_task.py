"""A task in parts becomes a prompt of that very form."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.errors import InvalidRequest
from adapters.protocol.request import MAX_PROMPT_BYTES, TurnRequest

WHOLE = {
    "description": "Mend the build.\nIt is urgent.",
    "acceptance_criteria": ["no test is left out", "it is documented"],
    "test_commands": ["make test", "make lint"],
    "attached_context": ["it broke yesterday"],
}
PROMPT = """Mend the build.
It is urgent.

## Acceptance Criteria
- no test is left out
- it is documented

## Test Commands
- `make test`
- `make lint`

## Additional Context
- it broke yesterday"""


def parsed(task: Any, **fields: Any) -> TurnRequest:
    return TurnRequest.parse({"task": task, "workspace": "/srv", **fields})


def test_all_sections_stand_in_their_order() -> None:
    assert parsed(dict(reversed(WHOLE.items()))).prompt == PROMPT


def test_empty_sections_are_left_out() -> None:
    assert parsed({"description": "Mend it."}).prompt == "Mend it."
    assert parsed({**WHOLE, "acceptance_criteria": [], "test_commands": []}).prompt == (
        "Mend the build.\nIt is urgent.\n\n## Additional Context\n- it broke yesterday"
    )


def test_request_with_a_task_reads_back_as_what_it_became() -> None:
    request = parsed(WHOLE)
    assert TurnRequest.model_validate_json(request.model_dump_json()) == request
    assert "task" not in request.model_dump()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"task": WHOLE, "prompt": "x"}, "give either prompt or task, not both"),
        ({}, "prompt: is missing"),
        ({"task": {}}, "task.description: is missing"),
        ({"task": {"description": " "}}, "task.description: is empty"),
        ({"task": {**WHOLE, "test_commands": ["make", ""]}}, "task.test_commands.1: is empty"),
        ({"task": {**WHOLE, "priority": 1}}, "task.priority: is not a known field"),
        ({"task": {"description": "a\0b"}}, "NUL"),
        ({"task": {"description": "x" * MAX_PROMPT_BYTES, "test_commands": ["y"]}}, "the limit is"),
    ],
)
def test_faulty_tasks_are_refused_with_the_field_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        TurnRequest.parse({"workspace": "/srv", **document})

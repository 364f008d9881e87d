"""A turn takes from the task before it what its request says, and what does not fit is refused by its field."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.errors import InvalidRequest
from adapters.protocol.arguments import asked
from adapters.protocol.request import MAX_PROMPT_BYTES, TurnRequest
from adapters.protocol.result import ErrorInfo, Status, TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult, SessionStatus

RESULT: dict[str, Any] = TurnResult(
    turn_id="plan",
    session_id="44f2d880",
    status=Status.COMPLETED,
    text="Do this, then that.",
    structured_output={"steps": ["this", "that"], "none": None},
    host="build-3",
).model_dump(mode="json")
FAILED: dict[str, Any] = TurnResult(
    turn_id="lost",
    status=Status.FAILED,
    error=ErrorInfo(kind="host_lost", message="it is gone", retryable=True),
).model_dump(mode="json")
SESSION: dict[str, Any] = SessionResult(
    run_id="build", status=SessionStatus.DONE, reason="tests_passed", session_id="9a", text="Mended."
).model_dump(mode="json")
WORK: dict[str, Any] = {"prompt": "Carry out the plan.", "workspace": "/srv/app"}


def taken(result: object, after: dict[str, Any], **fields: Any) -> TurnRequest:
    """The request that a turn has after that result."""
    said = asked([result, {**WORK, "turn_id": "work", "after": after, **fields}], {})
    assert said.fault is None
    return TurnRequest.parse(said.document)


def refused(positional: list[object], **named: object) -> str:
    """How the arguments are refused."""
    said = asked(positional, named)
    with pytest.raises(InvalidRequest) as caught:
        if said.fault is not None:
            raise said.fault
        TurnRequest.parse(said.document)
    return caught.value.message


@pytest.mark.parametrize(
    ("result", "path", "text"),
    [
        (RESULT, "text", "Do this, then that."),
        (SESSION, "text", "Mended."),
        ("From a task of my own.", "text", "From a task of my own."),
        ({"issue": {"body": "It crashes."}}, "issue.body", "It crashes."),
        (RESULT, "structured_output.steps", '[\n  "this",\n  "that"\n]'),
        ({"text": 5}, "text", "5"),
        (FAILED, "text", "It failed (host_lost): it is gone"),
        (FAILED | {"text": "So far so good"}, "text", "It failed (host_lost): it is gone\n\nSo far so good"),
    ],
)
def test_field_of_the_result_goes_into_the_prompt(result: object, path: str, text: str) -> None:
    assert taken(result, {"prompt": path}).prompt == f"Carry out the plan.\n\n<result>\n{text}\n</result>"
    assert taken(result, {"prompt": path}, prompt=None).prompt == text


def test_results_of_a_chord_are_numbered() -> None:
    both = '<result number="1" of="2">\na\n</result>\n\n<result number="2" of="2">\nb\n</result>'
    assert taken([{"text": "a"}, "b"], {"prompt": "text"}).prompt == f"Carry out the plan.\n\n{both}"
    assert taken([{"text": "a"}, "b"], {"prompt": "text"}, prompt=None).prompt == both
    assert taken([RESULT], {"prompt": "text"}, prompt=None).prompt == RESULT["text"]


def test_field_is_context_of_a_task_in_parts() -> None:
    task = {"description": "Do it.", "attached_context": ["It is urgent."]}
    request = taken(RESULT, {"prompt": "text"}, prompt=None, task=task)
    assert request.prompt == (
        "Do it.\n\n## Additional Context\n- It is urgent.\n- <result>\nDo this, then that.\n</result>"
    )


def test_session_goes_on_where_it_was() -> None:
    request = taken(RESULT, {"session": True})
    assert (request.session_id, request.workspace, request.host) == ("44f2d880", "/srv/app", None)
    kept = RESULT | {"workspace": "/made/plan"}
    request = taken(kept, {"session": True, "prompt": "text"}, workspace="")
    assert (request.session_id, request.workspace) == ("44f2d880", "/made/plan")
    assert "Do this" in request.prompt


def test_workspace_is_where_it_was_left() -> None:
    request = taken(RESULT, {"workspace": True})
    assert (request.session_id, request.workspace, request.host) == (None, "/srv/app", "build-3")
    request = taken(RESULT | {"workspace": "/made/plan"}, {"workspace": True}, workspace="")
    assert (request.workspace, request.host) == ("/made/plan", "build-3")


def test_nothing_else_of_the_result_is_taken() -> None:
    """Above all not its turn_id: it would be answered with the result of the turn before."""
    said = asked([RESULT, {**WORK, "after": {"prompt": "text"}}], {})
    assert TurnRequest.parse(said.document, turn_id="its-task").turn_id == "its-task"
    assert isinstance(said.document, dict)
    assert said.document.keys() == WORK.keys()


def test_first_turn_of_a_session_takes_what_a_turn_takes() -> None:
    document = {"turn": {**WORK, "after": {"prompt": "text", "session": True}}, "test_commands": ["true"]}
    said = asked([RESULT, document], {})
    request = SessionRequest.parse(said.document)
    assert (request.turn.session_id, request.turn.prompt.splitlines()[-2]) == ("44f2d880", RESULT["text"])
    fault = asked([RESULT, {"turn": WORK, "test_commands": ["true"]}], {}).fault
    assert fault is not None
    assert fault.message.startswith("turn.after: is missing")
    with pytest.raises(InvalidRequest, match=r"^turn\.after: needs the preceding task's result"):
        SessionRequest.parse(asked([document], {}).document)


@pytest.mark.parametrize(
    ("positional", "says"),
    [
        ([], "request: must be the only positional argument, or follow the preceding task's result; got 0"),
        ([1, 2, WORK], "request: must be the only positional argument"),
        (["text"], "request: must be one JSON object"),
        ([WORK, "text"], "request: must be one JSON object"),
        ([RESULT], "request: is missing (got only the preceding"),
        ([SESSION], "request: is missing (got only the preceding"),
        ([RESULT, RESULT], "request: is missing (got only the preceding"),
        ([RESULT, WORK], "after: is missing, but the arguments include"),
        ([None, WORK], "after: is missing, but the arguments include"),
        (
            [{**WORK, "after": {"prompt": "text"}}],
            "after: needs the preceding task's result, but there is none",
        ),
    ],
)
def test_arguments_that_are_not_a_request_are_refused(positional: list[object], says: str) -> None:
    assert refused(positional).startswith(says)


def test_named_arguments_are_refused() -> None:
    assert refused([], request=WORK).startswith("kwargs: must be empty")
    assert refused([WORK], priority=1).startswith("kwargs: must be empty")


@pytest.mark.parametrize(
    ("result", "after", "fields", "says"),
    [
        (RESULT, {}, {}, "after: takes nothing"),
        (RESULT, "text", {}, "after: must be a JSON object"),
        (RESULT, {"promt": "text"}, {}, "after.promt: is not a known field; did you mean prompt?"),
        (RESULT, {"prompt": "a..b"}, {}, "after.prompt: String should match"),
        (RESULT, {"prompt": "no.such"}, {}, "after.prompt: there is no no.such in the result"),
        (RESULT, {"prompt": "structured_output.none"}, {}, "after.prompt: there is no structured_output.none in"),
        (RESULT | {"text": " "}, {"prompt": "text"}, {}, "after.prompt: there is no text in the result, or it is"),
        (None, {"prompt": "text"}, {}, "after.prompt: there is no text in the result, which is null"),
        ("a", {"prompt": "body"}, {}, "after.prompt: there is no body in the result, which is a string"),
        ([], {"prompt": "text"}, {}, "after.prompt: needs results, got an empty list"),
        (
            [RESULT, 5],
            {"prompt": "text"},
            {},
            "after.prompt: there is no text in result 2 of 2, which is a number",
        ),
        ([RESULT], {"session": True}, {}, "after.session: needs the result of one turn, got a list"),
        ("a", {"workspace": True}, {}, "after.workspace: needs the result of one turn, got a string"),
        (FAILED, {"session": True}, {}, "after.session: there is no session_id in the result"),
        (FAILED, {"workspace": True}, {}, "after.workspace: there is no host in the result"),
        (RESULT, {"session": True}, {"session_id": "x"}, "after.session: conflicts with the request's session_id"),
        (RESULT | {"workspace": "/b"}, {"session": True}, {}, "after.session: conflicts with the request's work"),
        (RESULT, {"workspace": True}, {"host": "other"}, "after.workspace: conflicts with the request's host"),
        (RESULT, {"prompt": "text"}, {"prompt": " "}, "prompt: is empty"),
        (RESULT, {"prompt": "text"}, {"prompt": 5}, "prompt: Input should be a valid string"),
        ("a\0b", {"prompt": "text"}, {}, "prompt: contains a NUL"),
        (
            "a",
            {"prompt": "text"},
            {"prompt": None, "task": {"description": "b", "attached_context": 5}},
            "task.attached_context: must be a JSON list",
        ),
        (
            "é" * (MAX_PROMPT_BYTES // 2),
            {"prompt": "text"},
            {},
            "after.prompt: makes the prompt 10,485,800 bytes long; the limit is 10,485,760",
        ),
        (
            "é" * (MAX_PROMPT_BYTES // 2 + 1),
            {"prompt": "text"},
            {"prompt": None},
            "after.prompt: makes the prompt 10,485,762 bytes long",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(
    result: object, after: object, fields: dict[str, Any], says: str
) -> None:
    assert refused([result, {**WORK, "after": after, **fields}]).startswith(says)

"""A turn takes from the task before it what its request says: in chains, as the body of a chord, in sessions."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord
from celery.result import AsyncResult

from adapters.errors import InvalidRequest
from tests.integration.canvas.company import Company
from tests.support.fleets.fleet import WAIT_S, Fleet
from tests.support.needs import need
from tests.support.places import RECORDINGS
from tests.support.waiting import until
from workers import turn_signature, turn_signature_after
from workers.app import SESSION_TASK, TASK, create_app


@pytest.fixture
def company(shared: Fleet) -> Company:
    company = Company(shared)
    company.declare()
    return company


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A turn in a session of its own."""
    text = (RECORDINGS / "a_parallel_tools.jsonl").read_text()
    copy = tmp_path / "recording.jsonl"
    copy.write_text(text.replace("55335d49-1cc1-427c-9557-f27b71f9023c", str(uuid.uuid4())))
    return copy


@pytest.fixture
def named(request: pytest.FixtureRequest) -> str:
    """What this test's turns are called, before their own names."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:4]}"[-50:].lstrip("-_")


@pytest.fixture
def ours(shared: Fleet) -> Iterator[Celery]:
    """As runturn's own producers have it."""
    app = create_app(shared.environment.get("RUNTURN_BROKER_URL", shared.broker.url), shared.broker.url)
    yield app
    app.close()


def prompt_of(fleet: Fleet, turn_id: str) -> str:
    request = fleet.ledger.reports.request(turn_id)
    assert request is not None
    return request.prompt


def refusal(company: Company, task_id: str) -> str:
    """How a task was refused; its result is its own."""
    failed = AsyncResult(task_id, app=company.app)
    failed.get(timeout=WAIT_S, propagate=False)
    assert failed.state == "FAILURE"
    kind, message, result = failed.result.args
    assert (kind, result.get("turn_id", result.get("run_id"))) == ("invalid_request", task_id)
    return str(message)


def test_turn_takes_text_and_session_of_the_turn_before(
    shared: Fleet, company: Company, recording: Path, named: str
) -> None:
    plan, work = f"{named}.plan", f"{named}.work"
    answer = chain(
        company.turn(recording, plan), company.turn_after(recording, work, {"prompt": "text", "session": True})
    ).apply_async()
    assert answer.get(timeout=WAIT_S)["turn_id"] == work
    before, request = shared.result(plan), shared.ledger.reports.request(work)
    assert prompt_of(shared, work) == f"do it\n\n<result>\n{before.text}\n</result>"
    assert request is not None
    assert request.session_id == before.session_id == shared.result(work).session_id


def test_turns_of_a_chain_work_in_the_workspace_that_the_first_has_brought(
    shared: Fleet, company: Company, recording: Path, named: str, tmp_path: Path
) -> None:
    git = [need("git"), "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "begun"], check=True)
    tree = {"workspace": "", "worktree": {"repository": str(tmp_path)}, "keep_workspace": True}
    first = company.turn(recording, f"{named}.first", **tree)
    second = company.turn_after(recording, f"{named}.second", {"session": True})
    third = company.turn_after(recording, f"{named}.third", {"workspace": True})
    for each in (second, third):
        del each.args[0]["workspace"]
    assert chain(first, second, third).apply_async().get(timeout=WAIT_S)["status"] == "completed"
    place = shared.result(f"{named}.first").workspace
    for turn_id in (f"{named}.second", f"{named}.third"):
        request = shared.ledger.reports.request(turn_id)
        assert request is not None
        assert request.workspace == place
    assert (request.host, request.session_id) == ("local", None)


def test_turn_that_closes_a_chord_takes_all_texts(
    shared: Fleet, company: Company, recording: Path, named: str
) -> None:
    header = [
        company.turn(recording, f"{named}.good"),
        company.turn(recording.with_name("missing"), f"{named}.bad", failure="return"),
    ]
    body = company.turn_after(recording, f"{named}.body", {"prompt": "text"}, prompt="Compare them.")
    assert chord(header)(body).get(timeout=WAIT_S)["status"] == "completed"
    good, bad = shared.result(f"{named}.good"), shared.result(f"{named}.bad")
    assert bad.error is not None
    assert prompt_of(shared, f"{named}.body") == (
        f'Compare them.\n\n<result number="1" of="2">\n{good.text}\n</result>\n\n'
        f'<result number="2" of="2">\nIt failed ({bad.error.kind}): {bad.error.message}\n</result>'
    )


def test_task_of_another_application_writes_the_prompt_or_the_request(
    shared: Fleet, company: Company, recording: Path, named: str
) -> None:
    """Celery calls what follows on a task with its result before its own arguments."""
    written = company.turn_after(recording, f"{named}.prompt", {"prompt": "text"})
    del written.args[0]["prompt"]
    assert written.apply_async(("Mend issue 4711.",)).get(timeout=WAIT_S)["status"] == "completed"
    assert prompt_of(shared, f"{named}.prompt") == "Mend issue 4711."
    whole = company.turn(recording, f"{named}.request").args[0]
    answer = company.app.signature(TASK, queue="runturn").apply_async((whole,))
    assert answer.get(timeout=WAIT_S)["turn_id"] == f"{named}.request"


def test_continuation_that_comes_twice_runs_once_on_what_came_first(
    shared: Fleet, company: Company, recording: Path, named: str
) -> None:
    follower = company.turn_after(recording, named, {"prompt": "text"})
    answers = [follower.apply_async(("first",))]
    until(lambda: shared.ledger.reports.request(named), "the first to be there")
    answers.append(follower.apply_async(("second",)))
    answers.append(follower.apply_async(("third",), task_id=f"{named}.copy"))
    assert {answer.get(timeout=WAIT_S)["turn_id"] for answer in answers} == {named}
    assert shared.result(named).attempts == 1
    assert prompt_of(shared, named) == "do it\n\n<result>\nfirst\n</result>"


def test_session_of_turns_that_comes_twice_runs_once_on_what_came_first(
    shared: Fleet, company: Company, recording: Path, named: str
) -> None:
    turn = company.turn_after(recording, "any", {"prompt": "text"}).args[0]
    del turn["turn_id"]
    document = {"turn": turn, "test_commands": ["true"]}
    session = company.app.signature(SESSION_TASK, args=(document,), queue="runturn", task_id=named)
    answers = [session.apply_async(("first",))]
    until(lambda: shared.ledger.session_runs.find(named), "the first to be there")
    answers.append(session.apply_async(("second",)))
    assert [answer.get(timeout=WAIT_S)["turns"] for answer in answers] == [[f"{named}.1"]] * 2
    assert prompt_of(shared, f"{named}.1") == "do it\n\n<result>\nfirst\n</result>"


def test_turn_that_does_not_say_what_it_takes_is_refused(company: Company, recording: Path, named: str) -> None:
    before = company.turn(recording, f"{named}.before")
    silent = company.turn(recording, f"{named}.silent").set(immutable=False)
    chain(before, silent).apply_async()
    assert refusal(company, f"{named}.silent").startswith("after: is missing, but the arguments include")
    alone = company.turn_after(recording, f"{named}.alone", {"prompt": "text"})
    alone.apply_async()
    assert refusal(company, f"{named}.alone").startswith("after: needs the preceding task's result")
    unfit = company.turn_after(recording, f"{named}.unfit", {"prompt": "body"})
    unfit.apply_async(("text",))
    assert refusal(company, f"{named}.unfit") == "after.prompt: there is no body in the result, which is a string"


def test_turn_without_a_request_is_not_answered_with_the_result_before(
    company: Company, recording: Path, named: str
) -> None:
    """That names the turn before as its turn_id."""
    empty = company.app.signature(TASK, queue="runturn", task_id=f"{named}.empty")
    chain(company.turn(recording, f"{named}.before"), empty).apply_async()
    assert refusal(company, f"{named}.empty").startswith("request: is missing (got only the preceding")


def test_named_arguments_are_refused(company: Company, recording: Path, named: str) -> None:
    request = company.turn(recording, named).args[0]
    company.app.send_task(TASK, [request], {"retries": 3}, task_id=named, queue="runturn")
    assert refusal(company, named).startswith("kwargs: must be empty")


def test_session_of_turns_follows_on_a_turn_and_a_turn_on_it(
    shared: Fleet, company: Company, recording: Path, named: str
) -> None:
    first = company.turn_after(recording, "any", {"prompt": "text"}).args[0]
    del first["turn_id"]
    run_id, last = f"{named}.s", f"{named}.last"
    session = company.app.signature(
        SESSION_TASK, args=({"turn": first, "test_commands": ["true"]},), queue="runturn", task_id=run_id
    )
    after = company.turn_after(recording, last, {"prompt": "text", "session": True})
    answer = chain(company.turn(recording, f"{named}.first"), session, after).apply_async()
    assert answer.get(timeout=WAIT_S)["turn_id"] == last
    text = shared.result(f"{named}.first").text
    assert prompt_of(shared, f"{run_id}.1") == prompt_of(shared, last) == f"do it\n\n<result>\n{text}\n</result>"


def test_failed_session_of_turns_is_an_answer_where_its_turn_says_so(company: Company, named: str) -> None:
    turn = company.turn(Path("/missing"), "any", failure="return", max_attempts=1).args[0]
    del turn["turn_id"]
    document = {"turn": turn, "test_commands": ["true"]}
    answer = company.app.send_task(SESSION_TASK, [document], task_id=named, queue="runturn")
    assert answer.get(timeout=WAIT_S)["status"] == "failed"


def test_signatures_of_the_client_follow_on_each_other(
    shared: Fleet, ours: Celery, recording: Path, named: str
) -> None:
    fields = shared.recorded(recording).model_dump(mode="json", exclude_defaults=True)
    fields |= {"turn_id": f"{named}.work", "after": {"prompt": "text", "session": True}}
    plan = shared.recorded(recording, turn_id=f"{named}.plan")
    answer = chain(turn_signature(ours, plan), turn_signature_after(ours, fields)).apply_async()
    assert answer.get(timeout=WAIT_S)["turn_id"] == f"{named}.work"
    assert shared.result(f"{named}.plan").text in prompt_of(shared, f"{named}.work")


def test_client_refuses_a_request_that_no_result_could_complete(ours: Celery) -> None:
    """Before the turn that it follows on is paid for."""
    good: dict[str, Any] = {"prompt": "do it", "workspace": "/srv", "after": {"prompt": "a.b", "workspace": True}}
    assert list(turn_signature_after(ours, good).args) == [good]
    session = {"turn": {"after": {"prompt": "text", "session": True}}, "test_commands": ["true"]}
    assert turn_signature_after(ours, session).task == SESSION_TASK
    for bad, says in (
        ({**good, "promt": "x"}, "promt: is not a known field"),
        ({**good, "after": {"promt": "x"}}, "after.promt: is not a known field"),
        ({**good, "after": None}, "after: is missing"),
        ({"after": {"prompt": "text"}}, "workspace: is required"),
        ({**session, "max_turns": 0}, "max_turns: "),
    ):
        with pytest.raises(InvalidRequest, match=f"^{says}"):
            turn_signature_after(ours, bad)

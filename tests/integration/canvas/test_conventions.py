"""What else Celery's users are used to: it holds for turns as for any task, or is refused by name."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.canvas import Signature
from celery.exceptions import ChordError, Ignore, NotRegistered, TaskRevokedError, TimeoutError
from celery.result import AsyncResult

from tests.integration.canvas.company import Company
from tests.support.fleets.fleet import WAIT_S, Fleet, slow_recording
from tests.support.waiting import until

Turn = Callable[..., Signature]


@pytest.fixture
def company(shared: Fleet) -> Company:
    return Company(shared)


@pytest.fixture
def turn(company: Company, recording: Path) -> Turn:
    """Makes the signature of a turn that ends well, by its id, which is this test's own."""
    own = uuid.uuid4().hex[:6]
    return lambda name, **fields: company.turn(recording, f"{own}.{name}", **fields)


def failing(turn: Signature) -> Signature:
    turn.args[0]["options"]["recording"] = "/missing"
    return turn


def result_of(company: Company, turn: Signature) -> AsyncResult:
    return AsyncResult(turn.options["task_id"], app=company.app)


def test_canvases_are_nested(turn: Turn) -> None:
    groups = group(group(turn("a"), turn("b")), turn("c")).apply_async().get(timeout=WAIT_S)
    assert [result["turn_id"][-1] for result in groups] == ["a", "b", "c"]
    chains = chord([chain(turn("d"), turn("e")), turn("f")])(turn("g"))
    assert chains.get(timeout=WAIT_S)["turn_id"].endswith("g")
    middle = chain(turn("h"), group(turn("i"), turn("j")), turn("k")).apply_async()
    assert middle.get(timeout=WAIT_S)["turn_id"].endswith("k")


def test_chord_fails_with_a_turn_of_it(company: Company, turn: Turn) -> None:
    body, errback = turn("body"), turn("errback")
    body.link_error(errback)
    chord([failing(turn("bad")), turn("good")])(body)
    assert result_of(company, errback).get(timeout=WAIT_S)["status"] == "completed"
    with pytest.raises(ChordError, match="port_exit"):
        result_of(company, body).get(timeout=WAIT_S)


def test_turn_is_called_when_another_one_fails(company: Company, turn: Turn) -> None:
    bad, errback = failing(turn("bad")), turn("errback")
    bad.link_error(errback)
    bad.apply_async()
    assert result_of(company, errback).get(timeout=WAIT_S)["status"] == "completed"


def test_turn_replaces_the_task_that_asks_for_it(company: Company, turn: Turn) -> None:
    """It has that task's id then, and is followed by what was to follow on that."""
    replacement, follower, task_id = turn("replacement"), turn("follower"), uuid.uuid4().hex
    del replacement.options["task_id"], replacement.args[0]["turn_id"]

    @company.app.task(bind=True, name="company.asks", shared=False)  # type: ignore[untyped-decorator]
    def asks(task: Any) -> None:
        task.replace(replacement)

    asks.push_request(id=task_id, root_id=task_id, called_directly=False, chain=[follower])
    with pytest.raises(Ignore):
        asks.run()
    assert AsyncResult(task_id, app=company.app).get(timeout=WAIT_S)["turn_id"] == task_id
    assert result_of(company, follower).get(timeout=WAIT_S)["status"] == "completed"


def test_no_turn_runs_in_its_producer(company: Company, turn: Turn) -> None:
    with pytest.raises(NotRegistered):
        turn("applied").apply()
    company.app.conf.task_always_eager = True
    with pytest.raises(NotRegistered):
        chain(turn("one"), turn("two")).apply_async()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert turn("sent").apply_async().get(timeout=WAIT_S)["status"] == "completed"
    assert "task_always_eager has no effect on send_task" in map(str, (each.message for each in warned))


def test_results_lead_to_each_other(company: Company, turn: Turn) -> None:
    first, second = turn("first"), turn("second")
    answer = chain(first, second).apply_async()
    assert answer.get(timeout=WAIT_S)["status"] == "completed"
    assert answer.parent.id == first.options["task_id"]
    until(lambda: answer.parent.state == "SUCCESS", "its state, which is stored after what follows")
    assert [child.id for child in result_of(company, first).children] == [answer.id]
    assert [each.id for each, _ in result_of(company, first).collect()] == [answer.parent.id, answer.id]


def test_result_is_forgotten_by_the_backend_only(shared: Fleet, turn: Turn) -> None:
    answer = turn("forgotten").apply_async()
    turn_id = answer.get(timeout=WAIT_S)["turn_id"]
    assert (answer.name, answer.args, answer.worker) == (None, None, None)  # as with `result_extended` off
    answer.forget()
    assert answer.state == "PENDING"
    assert shared.result(turn_id).status == "completed"


def test_who_waits_no_longer_ends_no_turn(company: Company, recording: Path, tmp_path: Path) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 600)
    answer = company.turn(slow, f"slow.{uuid.uuid4().hex}").apply_async()
    with pytest.raises(TimeoutError):
        answer.get(timeout=0.01)
    assert answer.get(timeout=WAIT_S)["status"] == "completed"


def test_message_may_be_compressed(turn: Turn) -> None:
    assert turn("packed").apply_async(compression="gzip").get(timeout=WAIT_S)["status"] == "completed"


@pytest.mark.parametrize("expires", [-5, datetime.now(UTC) - timedelta(hours=1)])
def test_task_that_has_expired_before_it_was_sent_never_runs(turn: Turn, expires: object) -> None:
    with pytest.raises(TaskRevokedError, match="expired"):
        turn("late").apply_async(expires=expires).get(timeout=WAIT_S)


def test_turn_in_a_chain_waits_for_its_time(shared: Fleet, turn: Turn) -> None:
    second = turn("second").set(countdown=1)
    turn_id = chain(turn("first"), second).apply_async().get(timeout=WAIT_S)["turn_id"]
    settled = shared.ledger.reports.turn(turn_id.replace("second", "first")).settled_at
    assert settled is not None
    (begun, *_) = (event["at"] for event in shared.events(turn_id))
    assert begun >= settled + 1

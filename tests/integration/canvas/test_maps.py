"""Celery's maps over turns: each item is a turn of its own, and the map ends with the results of all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from celery import Celery, chain, chord, group
from celery.canvas import Signature, chunks, xmap, xstarmap
from celery.exceptions import ChordError, NotRegistered, TaskRevokedError
from celery.result import AsyncResult

from tests.integration.canvas.company import Company
from tests.integration.canvas.conftest import fleet_on
from tests.integration.celery.test_pool import events_of, told_of
from tests.support.brokers.node import Vhost
from tests.support.fleets.fleet import WAIT_S, Fleet, slow_recording
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.waiting import until
from workers.app import SESSION_TASK, TASK

Request = Callable[..., dict[str, Any]]


@pytest.fixture
def company(shared: Fleet) -> Company:
    company = Company(shared)
    company.declare()
    return company


@pytest.fixture
def request_of(company: Company, recording: Path) -> Request:
    """Makes the request of a turn that ends well, by its id, which is this test's own."""
    own = uuid.uuid4().hex[:6]

    def request_of(name: str, **fields: Any) -> dict[str, Any]:
        request: dict[str, Any] = company.turn(recording, f"{own}.{name}", **fields).args[0]
        return request

    return request_of


def mapped(company: Company, *items: object, task: str = TASK) -> Signature:
    return xmap(company.app.signature(task), items, app=company.app).set(queue="runturn", task_id=uuid.uuid4().hex)


def sent(mapped: Signature, **options: Any) -> AsyncResult:
    """A map that is sent by itself forgets what was set."""
    return mapped.apply_async(**mapped.options, **options)


def replaying(request: dict[str, Any], recording: Path) -> dict[str, Any]:
    return {**request, "options": {"recording": str(recording)}}


def failing(request: dict[str, Any]) -> dict[str, Any]:
    return replaying(request, Path("/missing"))


def ids(results: list[dict[str, Any]]) -> list[str]:
    return [result["turn_id"].partition(".")[2] for result in results]


def test_map_has_the_results_in_the_order_of_its_items(company: Company, request_of: Request) -> None:
    names = ["c", "a", "b"]
    assert ids(sent(mapped(company, *map(request_of, names))).get(timeout=WAIT_S)) == names


def test_starmap_calls_turns_with_a_result_and_a_request(
    shared: Fleet, company: Company, request_of: Request
) -> None:
    after = {**request_of("after"), "after": {"prompt": "text"}}
    items = [[request_of("alone")], ["What came of it.", after]]
    answer = xstarmap(company.app.signature(TASK), items, app=company.app).apply_async(queue="runturn")
    assert ids(answer.get(timeout=WAIT_S)) == ["alone", "after"]
    request = shared.ledger.reports.request(after["turn_id"])
    assert request is not None
    assert request.prompt.endswith("<result>\nWhat came of it.\n</result>")


def test_chunks_are_starmaps(company: Company, request_of: Request) -> None:
    items = [[request_of(name)] for name in "abc"]
    answer = chunks(company.app.signature(TASK), items, 2, app=company.app).apply_async(queue="runturn")
    assert [ids(chunk) for chunk in answer.get(timeout=WAIT_S)] == [["a", "b"], ["c"]]


def test_sessions_are_mapped(company: Company, request_of: Request) -> None:
    first = {name: value for name, value in request_of("x").items() if name != "turn_id"}
    sessions = [{"turn": first, "test_commands": ["true"]} for _ in range(2)]
    results = sent(mapped(company, *sessions, task=SESSION_TASK)).get(timeout=WAIT_S)
    assert [len(result["turns"]) for result in results] == [1, 1]


def test_turn_takes_from_the_map_before_it(
    shared: Fleet, company: Company, request_of: Request, recording: Path
) -> None:
    after = request_of("after")
    following = company.turn_after(recording, after["turn_id"], {"prompt": "text"})
    chain(mapped(company, request_of("a"), request_of("b")), following).apply_async().get(timeout=WAIT_S)
    request = shared.ledger.reports.request(after["turn_id"])
    assert request is not None
    assert '<result number="2" of="2">' in request.prompt


def test_map_follows_a_turn_and_is_followed_by_another(
    company: Company, request_of: Request, recording: Path
) -> None:
    before, after = (company.turn(recording, request_of(name)["turn_id"]) for name in ("before", "after"))
    middle = mapped(company, request_of("a"))
    assert chain(before, middle, after).apply_async().get(timeout=WAIT_S)["turn_id"].endswith("after")
    assert ids(AsyncResult(middle.options["task_id"], app=company.app).get(timeout=WAIT_S)) == ["a"]


def test_maps_are_parts_and_body_of_a_chord(company: Company, request_of: Request, recording: Path) -> None:
    parts = [mapped(company, request_of("a"), request_of("b")), mapped(company)]
    answer = chord(parts, mapped(company, request_of("c")), app=company.app).apply_async()
    assert ids(answer.get(timeout=WAIT_S)) == ["c"]
    together = group(mapped(company, request_of("d")), mapped(company, request_of("e")))
    assert [ids(each) for each in together.apply_async().get(timeout=WAIT_S)] == [["d"], ["e"]]


def test_own_task_is_linked_to_a_map(company: Company, request_of: Request) -> None:
    body = company.body(uuid.uuid4().hex)
    sent(mapped(company, request_of("a"), request_of("b")), link=body)
    task_id, results = company.received()
    assert (task_id, ids(results)) == (body.options["task_id"], ["a", "b"])


def test_map_fails_with_a_turn_of_it(shared: Fleet, company: Company, request_of: Request) -> None:
    errback, following = company.body(f"errback-{uuid.uuid4().hex}"), company.body("never").set(immutable=True)
    good = request_of("good")
    answer = sent(mapped(company, failing(request_of("bad")), good), link_error=errback, link=following)
    with pytest.raises(ChordError, match="port_exit"):
        answer.get(timeout=WAIT_S)
    assert company.received() == (errback.options["task_id"], answer.id)
    assert shared.result(good["turn_id"]).status == "completed"


def test_chain_ends_at_a_map_that_fails(company: Company, request_of: Request, recording: Path) -> None:
    after = company.turn(recording, request_of("after")["turn_id"])
    with pytest.raises(ChordError, match="port_exit"):
        chain(mapped(company, failing(request_of("bad"))), after).apply_async().get(timeout=WAIT_S)


def test_chord_fails_with_a_map_of_it(company: Company, request_of: Request) -> None:
    body, errback = mapped(company, request_of("never")), company.body(uuid.uuid4().hex)
    parts = [mapped(company, failing(request_of("bad"))), mapped(company, request_of("good"))]
    chord(parts, body.on_error(errback), app=company.app).apply_async()
    assert company.received() == (errback.options["task_id"], body.options["task_id"])
    until(lambda: company.state(body.options["task_id"]) == "FAILURE", "the body's failure")


@pytest.mark.parametrize(
    ("kind", "item"), [(xmap, 7), (xmap, {"prompt": ""}), (xstarmap, [1, 2, 3]), (xstarmap, 7)]
)
def test_map_fails_with_an_item_that_is_no_request(company: Company, kind: type[Signature], item: object) -> None:
    answer = kind(company.app.signature(TASK), [item], app=company.app).apply_async(queue="runturn")
    with pytest.raises(Exception, match=r"invalid_request|'int' object is not iterable"):
        answer.get(timeout=WAIT_S)


def test_map_of_nothing_has_no_results(company: Company) -> None:
    body = company.body(uuid.uuid4().hex)
    assert sent(mapped(company), link=body).get(timeout=WAIT_S) == []
    assert company.received() == (body.options["task_id"], [])


def test_map_that_is_sent_twice_runs_its_turns_once(shared: Fleet, company: Company, request_of: Request) -> None:
    request = request_of("x")
    del request["turn_id"]
    twice = mapped(company, request, request)
    first, again = (sent(twice).get(timeout=WAIT_S) for _ in range(2))
    assert [each["turn_id"] for each in first] == [each["turn_id"] for each in again]
    assert len({each["turn_id"] for each in first}) == 2
    assert {shared.result(each["turn_id"]).attempts for each in first} == {1}


def test_same_turn_may_be_asked_for_by_two_items(company: Company, request_of: Request) -> None:
    request = request_of("same")
    assert ids(sent(mapped(company, request, request)).get(timeout=WAIT_S)) == ["same", "same"]


# What a worker that dies has just sent, or is about to store: of turns, of what follows on them, and of the map.
STRUCK = (
    "after-sending/{0}",
    "after-sending/{1}",
    "after-sending/{map}",
    "before-state/{map}",
    "after-sending/{link}",
)


def test_worker_killed_at_any_moment_costs_no_map(fleet: Fleet, recording: Path) -> None:
    company = Company(fleet)
    company.declare()
    fleet.module = "tests.integration.canvas.mortal"
    for number, moment in enumerate(STRUCK):
        map_id, link = f"map-{number}", company.body(f"after-{number}")
        parts = [str(uuid5(NAMESPACE_OID, f"{map_id} {part}")) for part in range(2)]
        fleet.environment["MORTAL"] = moment.format(*parts, map=map_id, link=link.options["task_id"])
        worker = fleet.start_worker()
        requests = [company.turn(recording, f"{number}.{part}").args[0] for part in range(2)]
        sent(mapped(company, *requests).set(task_id=map_id), link=link)
        until(lambda worker=worker: worker.process.poll() is not None, f"the end {moment}")  # type: ignore[misc]
        assert worker.process.poll() == -9, worker.log.read_text()
    fleet.module = "workers.__main__"
    fleet.start_worker()
    missing = {f"after-{number}" for number in range(len(STRUCK))}
    while missing:
        task_id, results = company.received()
        assert ids(results) == ["0", "1"]
        missing.discard(task_id)
    for number in range(len(STRUCK)):
        answer = AsyncResult(f"map-{number}", app=company.app)
        assert {each["attempts"] for each in answer.get(timeout=WAIT_S)} == {1}
    fleet.assert_nothing_left()


def test_map_is_told_once_the_queue_of_its_link_and_the_result_backend_are_there(
    request: pytest.FixtureRequest, tmp_path: Path, recording: Path
) -> None:
    with fleet_on("rabbitmq", tmp_path, request) as fleet:
        worker, company = fleet.start_worker(), Company(fleet)
        tried = lambda: worker.log.read_bytes().count(b"a task's end will be delivered later")  # noqa: E731
        mapping = mapped(company, company.turn(recording, "a.part").args[0])
        answer = sent(mapping, link=company.body("linked").set(queue="later"))
        until(lambda: tried() > 1, "the worker to have tried it twice")
        fleet.broker.stop()
        with company.app.connection_for_read() as connection, connection.SimpleQueue("later") as queue:
            assert ids(queue.get(timeout=WAIT_S).payload[0][0]) == ["part"]
        before = tried()
        until(lambda: tried() > before, "the worker to have missed the result backend")
        fleet.broker.ensure()
        until(lambda: company.state(answer.id) == "SUCCESS", "the map's result")


def test_revoked_map_is_revoked_once_its_turns_have_ended(
    shared: Fleet, company: Company, request_of: Request, recording: Path, tmp_path: Path
) -> None:
    slow = replaying(request_of("slow"), slow_recording(tmp_path / "slow.jsonl", recording, 1500))
    answer = sent(mapped(company, slow))
    until(lambda: shared.events(slow["turn_id"]), "its turn to be under way")
    assert company.app.control.revoke(answer.id, reply=True, timeout=WAIT_S, limit=1)
    with pytest.raises(TaskRevokedError):
        answer.get(timeout=WAIT_S)
    assert shared.result(slow["turn_id"]).status == "completed"


def test_turns_of_a_map_are_cancelled_by_its_stamps(
    shared: Fleet, company: Company, request_of: Request, recording: Path, tmp_path: Path
) -> None:
    slow = replaying(request_of("slow"), slow_recording(tmp_path / "slow.jsonl", recording, 60_000))
    stamp = uuid.uuid4().hex
    answer = sent(mapped(company, slow), stamped_headers=["release"], release=stamp)
    until(lambda: shared.events(slow["turn_id"]), "its turn to be under way")
    company.app.control.revoke_by_stamped_headers({"release": [stamp]}, terminate=True)
    with pytest.raises((ChordError, TaskRevokedError)):
        answer.get(timeout=WAIT_S)
    assert shared.result(slow["turn_id"]).status == "cancelled"


def test_monitors_see_no_words_of_a_map(shared: Fleet, company: Company, request_of: Request) -> None:
    with events_of(company.app) as seen:
        answer = sent(mapped(company, request_of("a", prompt="our secret")))
        (result,) = answer.get(timeout=WAIT_S)
        until(lambda: told_of(seen, answer.id)["task-succeeded"], "the end to be told")
    told = str([event for event in seen if event.get("uuid") == answer.id])
    assert "our secret" not in told
    assert str(result["text"]) not in told


def test_map_without_chords_is_refused_by_name(tmp_path: Path, vhost: Vhost) -> None:
    with RabbitFleet(tmp_path, vhost) as fleet:
        fleet.start_worker()
        app = Celery(broker=vhost.url, set_as_current=False)
        xmap(app.signature(TASK), [{}], app=app).apply_async(queue="runturn", task_id="refused")
        (letter,) = until(lambda: fleet.ledger.dead_letters.newest(2), "its message to be put aside")
    assert (letter.task_id, letter.reason) == (
        "refused",
        "celery.map over turns needs a result backend that supports chords (RUNTURN_RESULT_URL); set one, or send "
        "a group",
    )


def test_chunks_that_are_to_be_split_in_a_worker_are_refused(company: Company) -> None:
    arguments = {"task": company.app.signature(TASK), "it": [], "n": 1}
    answer = company.app.send_task("celery.chunks", (), arguments, queue="runturn")
    with pytest.raises(Exception, match=r"^celery.chunks must be split by its producer: send chunks"):
        answer.get(timeout=WAIT_S)


def test_worker_of_the_producers_own_has_no_turns_to_call(company: Company, request_of: Request) -> None:
    with pytest.raises(NotRegistered):
        company.app.tasks["celery.map"](company.app.signature(TASK), [request_of("x")])

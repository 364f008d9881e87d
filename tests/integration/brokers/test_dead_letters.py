"""What no worker can read is put aside with its reason; it holds up nothing, and can be sent again."""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import redis
from kombu import Connection

from adapters.protocol.result import Status
from ops.ledger import DeadLetterRow, Ledger
from ops.ledger import dead_letters as book
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.ledgers import new_ledger
from tests.support.waiting import until
from workers.app import QUEUE
from workers.brokers.redis_transport import UNACKED
from workers.brokers.settings import dead_queue, turn_queue
from workers.worker.dead_letters import dead_letter

DEAD = dead_queue(QUEUE)
JSON = "application/json"
TASK = {"task": "runturn.run_turn", "id": "poison"}
POISON: Mapping[str, tuple[bytes, str | None, Mapping[str, Any], str]] = {
    "no JSON": (b"{", JSON, TASK, "the body is not application/json"),
    "no UTF-8": (b'["\xff"]', JSON, TASK, "the body is not application/json"),
    "pickle": (b"cos\nsystem\n(S'true'\ntR.", "application/x-python-serialize", TASK, "is not accepted"),
    "no content type": (b"[]", None, TASK, "not a Celery message"),
    "no task": (b"{}", JSON, {}, "neither its headers nor its body name a task"),
    "no arguments": (b"5", JSON, TASK, "the body is not [arguments"),
    "no id": (b"[[], {}, {}]", JSON, {"task": "runturn.run_turn"}, "the id header is missing"),
    "task is no text": (b"[[], {}, {}]", JSON, {**TASK, "task": ["a"]}, "the task header is not a string"),
    "not ours": (b"[[], {}, {}]", JSON, {**TASK, "task": "send_mail"}, "there is no task 'send_mail'"),
    "no time": (b"[[], {}, {}]", JSON, {**TASK, "eta": "soon"}, "not a valid task"),
    "broken compression": (b"[]", JSON, {**TASK, "compression": "application/x-gzip"}, "the body is not"),
}

# A worker whose code has a bug. It is run before the command line of a worker.
FAULTY = """
import sys
from workers.worker import strategy

def faulty(*_):
    raise KeyError("odd")

strategy._arrival = faulty
from workers.__main__ import main
sys.argv = ["runturn", *sys.argv[4:]]
main()
"""


@pytest.fixture(params=["redis", "rabbitmq"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet without a worker yet, on each kind of broker."""
    with ExitStack() as stack:
        if request.param == "rabbitmq":
            yield stack.enter_context(RabbitFleet(tmp_path, request.getfixturevalue("vhost")))
        else:
            yield stack.enter_context(Fleet(tmp_path))


def _url(fleet: Fleet) -> str:
    return fleet.vhost.url if isinstance(fleet, RabbitFleet) else fleet.broker.url


def publish(
    url: str, body: bytes, content_type: str | None, headers: Mapping[str, Any], **properties: Any
) -> None:
    with Connection(url) as connection:
        connection.Producer().publish(
            body,
            routing_key=QUEUE,
            declare=[turn_queue(QUEUE)],
            content_type=content_type,
            content_encoding="utf-8",
            headers=dict(headers),
            **properties,
        )


def _rows(fleet: Fleet, count: int) -> list[DeadLetterRow]:
    until(lambda: len(fleet.ledger.dead_letters.newest(100)) >= count, f"{count} dead letters")
    rows = fleet.ledger.dead_letters.newest(100)
    assert len(rows) == count
    return rows


def _assert_acked(fleet: Fleet) -> None:
    if isinstance(fleet, RabbitFleet):
        until(lambda: not fleet.vhost.messages(QUEUE), "the queue to be empty")
        until(lambda: not fleet.vhost.messages(DEAD.name), "the queue of dead letters to be empty")
    else:
        with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
            until(lambda: not client.hlen(UNACKED) and not client.llen(QUEUE), "all messages to be acked")


def test_poison_is_put_aside_with_its_reason_and_turns_run_on(fleet: Fleet, recording: Path) -> None:
    worker = fleet.start_worker("--concurrency", "2")
    for body, content_type, headers, _ in POISON.values():
        publish(_url(fleet), body, content_type, headers)
    assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
    reasons = [row.reason for row in _rows(fleet, len(POISON))]
    for name, (*_, expected) in POISON.items():
        assert any(expected in reason for reason in reasons), (name, reasons)
    _assert_acked(fleet)
    assert worker.process.poll() is None
    fleet.assert_nothing_left()


def test_key_error_of_ours_is_not_taken_for_a_lost_broker(fleet: Fleet) -> None:
    """kombu counts it among those, and the message would come again for ever."""
    fleet.start_worker(prefix=(sys.executable, "-c", FAULTY))
    publish(_url(fleet), b"[[], {}, {}]", JSON, TASK)
    (row,) = _rows(fleet, 1)
    assert row.reason == "it could not be received: KeyError: 'odd'"
    _assert_acked(fleet)


def test_retry_sends_the_message_as_it_was(fleet: Fleet, recording: Path) -> None:
    request = fleet.recorded(recording, turn_id="again").model_dump(mode="json", exclude_defaults=True)
    body = json.dumps([[request], {}, {}]).encode()
    headers = {**TASK, "id": "again", "argsrepr": "a secret prompt", "x-api-key": "hunter2", "eta": "soon"}
    fleet.start_worker()
    publish(_url(fleet), body, JSON, headers, correlation_id="again")
    (row,) = _rows(fleet, 1)
    assert (row.task_id, row.queue, row.body_bytes) == ("again", QUEUE, len(body))
    assert row.headers == {"task": "runturn.run_turn", "id": "again", "eta": "soon"}
    # Nothing has changed, so it comes back. Then, as an upgrade would, somebody makes it readable.
    assert fleet.command("dead", "retry", row.letter_id).returncode == 0
    (again,) = _rows(fleet, 1)
    assert again.letter_id == row.letter_id
    with closing(sqlite3.connect(fleet.state.ledger_url.removeprefix("sqlite:///"))) as ledger, ledger:
        ledger.execute("UPDATE dead_letters SET headers = json_remove(headers, '$.eta')")
    said = fleet.command("dead", "retry", "--all")
    assert (said.returncode, said.stderr) == (0, "")
    assert fleet.result("again").status is Status.COMPLETED
    assert fleet.ledger.dead_letters.newest(100) == []
    _assert_acked(fleet)


def test_poison_waits_for_a_ledger_that_is_away(fleet: Fleet) -> None:
    fleet.start_worker()
    with closing(sqlite3.connect(fleet.state.ledger_url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")
        publish(_url(fleet), b"{", JSON, TASK)
        log = fleet.state.logs
        until(lambda: any(b"cannot be set aside yet" in path.read_bytes() for path in log.iterdir()), "a warning")
        other.rollback()
    _rows(fleet, 1)
    _assert_acked(fleet)


def test_same_message_twice_is_one_dead_letter(fleet: Fleet) -> None:
    for _ in range(2):
        publish(_url(fleet), b"{", JSON, TASK)
    publish(_url(fleet), b"[", JSON, TASK)
    fleet.start_worker()
    _rows(fleet, 2)
    _assert_acked(fleet)


def test_compressed_poison_can_be_read(fleet: Fleet) -> None:
    headers = {**TASK, "task": "send_mail", "compression": "application/x-gzip"}
    publish(_url(fleet), zlib.compress(b"[[], {}, {}]"), JSON, headers)
    fleet.start_worker()
    (row,) = _rows(fleet, 1)
    letter = fleet.ledger.dead_letters.find(row.letter_id)
    assert letter is not None
    assert row.reason == "there is no task 'send_mail'"
    assert letter.body == b"[[], {}, {}]" or "compression" in row.headers


def test_what_rabbitmq_gives_up_on_is_a_dead_letter(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with RabbitFleet(tmp_path, request.getfixturevalue("vhost")) as fleet:
        with Connection(_url(fleet)) as connection:
            DEAD(connection.default_channel).declare()
        publish(_url(fleet), b"[[], {}, {}]", JSON, TASK, expiration=0.001)
        until(lambda: fleet.vhost.messages(DEAD.name) == 1, "RabbitMQ to give it up")
        publish(_url(fleet), b"[[5], {}, {}]", JSON, TASK)
        with Connection(_url(fleet)) as connection:
            queue = turn_queue(QUEUE)(connection.default_channel)
            for _ in range(21):
                until(lambda: (message := queue.get()) and (message.requeue() or True), "the message")
        fleet.start_worker()
        assert {row.reason.partition(":")[0] for row in _rows(fleet, 2)} == {
            "it expired in the queue before a worker took it",
            "RabbitMQ dead-lettered it",
        }
        _assert_acked(fleet)


def _message(body: bytes, headers: Mapping[str, Any]) -> Mock:
    return Mock(body=body, headers=headers, content_type=JSON, content_encoding="utf-8", properties={}, errors=[])


def test_ledger_keeps_the_newest_and_no_endless_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "MAX_LETTERS", 3)
    monkeypatch.setattr(book, "MAX_BODY_BYTES", 8)
    with Ledger.open(new_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")) as ledger:
        for second in range(6):
            letter = dead_letter(_message(b"x" * (second + 4), TASK), "why", float(second))
            assert ledger.dead_letters.keep(letter)
            assert not ledger.dead_letters.keep(letter)
        rows = ledger.dead_letters.newest(10)
        assert [row.received_at for row in rows] == [5.0, 4.0, 3.0]
        bodies = [(row.body_bytes, getattr(ledger.dead_letters.find(row.letter_id), "body", b"?")) for row in rows]
        assert bodies == [(9, None), (8, b"x" * 8), (7, b"x" * 7)]


def test_message_that_comes_back_at_once_is_not_forgotten(tmp_path: Path) -> None:
    """A worker may put it aside again before whoever has queued it again forgets it."""
    with Ledger.open(new_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")) as ledger:
        first, second = (dead_letter(_message(b"{", TASK), "why", at) for at in (1.0, 2.0))
        ledger.dead_letters.keep(first)
        ledger.dead_letters.keep(second)
        ledger.dead_letters.sent_again(first.row)
        assert [row.received_at for row in ledger.dead_letters.newest(10)] == [2.0]
        ledger.dead_letters.sent_again(second.row)
        assert ledger.dead_letters.newest(10) == []


@pytest.mark.parametrize(
    "headers",
    [None, [], {"id": 5}, {"id": "a\0b"}, {"id": "\ud800"}, {"n": 2**70}, {"x": object()}, {"t": "x" * 10**6}],
    ids=lambda headers: str(headers)[:20],
)
def test_odd_headers_do_not_matter(tmp_path: Path, headers: Any) -> None:
    letter = dead_letter(_message(b"", headers), "why \0 \ud800", 1.0)
    with Ledger.open(new_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")) as ledger:
        assert ledger.dead_letters.keep(letter)
        assert ledger.dead_letters.newest(1) == [letter.row]


def test_request_of_a_newer_version_is_put_aside_and_not_refused(fleet: Fleet, recording: Path) -> None:
    fleet.start_worker()
    document = {"version": 2, "prompt": "x", "workspace": "/", "agent": "scripted"}
    publish(_url(fleet), json.dumps([[document], {}, {}]).encode(), JSON, {**TASK, "id": "newer"})
    (row,) = _rows(fleet, 1)
    assert (row.task_id, row.reason) == (
        "newer",
        "version 2 of the request is not supported: upgrade the workers",
    )
    assert fleet.ledger.reports.history() == []
    assert fleet.run(fleet.recorded(recording)).attempts == 1
    _assert_acked(fleet)

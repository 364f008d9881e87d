"""An end that cannot be delivered is no failure of the task: it is delivered later, without what was sent."""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
import redis
from celery import Celery, chain, chord, group
from celery.canvas import Signature
from celery.result import AsyncResult
from kombu.transport.memory import Channel
from structlog.testing import capture_logs

from adapters.errors import TurnCancelled
from adapters.protocol.result import ErrorInfo, Status, TurnResult
from ops.ledger import Waiter
from ops.redaction import Redactor
from tests.fakes.failures import fail_once
from tests.support.fleets.site import Site
from tests.support.ledgers import tasks_of
from workers.app import TASK, create_app
from workers.brokers.embedded import EmbeddedBroker
from workers.results import refused
from workers.tasks.celery_request import ShownRequest
from workers.tasks.definitions import define
from workers.tasks.delivery import Execution, Outcome
from workers.tasks.execution import TaskExecutor
from workers.tasks.hub import Hub
from workers.tasks.kept_message import keep
from workers.tasks.waiting import WaitingTasks
from workers.worker.process import leave_logging_alone

FAILED = TurnResult(turn_id="t1", status=Status.FAILED)


class Away(Protocol):
    """A result backend that can be brought to answer with errors that are none of the connection."""

    url: str

    def fails(self) -> contextlib.AbstractContextManager[object]:
        """While this lasts."""
        ...


class Valkey:
    """A server whose memory is full, or that has become a replica of another one."""

    def __init__(self, server: EmbeddedBroker, *, full: bool) -> None:
        self.url = server.url
        self.client = redis.Redis(unix_socket_path=str(server.socket))
        self._full = full

    @contextlib.contextmanager
    def fails(self) -> Iterator[None]:
        """See `Away.fails`."""
        if self._full:
            self.client.config_set("maxmemory", "1")
        else:
            self.client.replicaof("127.0.0.1", "1")
        try:
            yield
        finally:
            self.client.config_set("maxmemory", "0")
            self.client.replicaof("NO", "ONE")


class Sqlite:
    """A database whose table of results is gone for a while."""

    def __init__(self, file: Path) -> None:
        self.url = f"db+sqlite:///{file}"
        self._file = file

    @contextlib.contextmanager
    def fails(self) -> Iterator[None]:
        """See `Away.fails`."""
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            connection.execute("ALTER TABLE celery_taskmeta RENAME TO away")
            try:
                yield
            finally:
                connection.execute("ALTER TABLE away RENAME TO celery_taskmeta")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    server = EmbeddedBroker(tmp_path_factory.mktemp("valkey"))
    server.ensure()
    yield server
    server.stop()


@pytest.fixture(params=["full", "replica", "db"])
def away(request: pytest.FixtureRequest, server: EmbeddedBroker, tmp_path: Path) -> Away:
    if request.param == "db":
        return Sqlite(tmp_path / "results.db")
    Valkey(server, full=True).client.flushall()
    return Valkey(server, full=request.param == "full")


@pytest.fixture
def valkey(server: EmbeddedBroker) -> Valkey:
    valkey = Valkey(server, full=True)
    valkey.client.flushall()
    return valkey


class Bench:
    """An executor, and a company that sends it canvases by a broker in memory."""

    def __init__(self, results: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[dict[str, Any]] = []  # all messages of tasks, as the broker has them
        self.refused: dict[str, Callable[[], object]] = {}  # tasks that it does not take, and what happens then
        self.app = create_app("memory://", results)
        self.executor = TaskExecutor(self.app, Hub(), Redactor({}))
        define(self.app, lambda *_: lambda *_: None)
        self.executor.prepare("worker@here")
        self.company = Celery("company", broker="memory://", backend=results, set_as_current=False)
        put = Channel._put

        def record(channel: Channel, queue: str, message: dict[str, Any], **options: Any) -> None:
            task_id = message["headers"].get("id")
            if task_id in self.refused:
                self.refused[task_id]()
                raise RuntimeError("the broker wants none of it")
            put(channel, queue, message, **options)
            self.sent.append(message)

        monkeypatch.setattr(Channel, "_put", record)

    def refuse(self, task_id: str, then: Callable[[], object] = lambda: None) -> None:
        self.refused[task_id] = then

    def turn(self, turn_id: str = "t1") -> Signature:
        return self.company.signature(TASK, args=({},), task_id=turn_id, queue="runturn", immutable=True)

    def after(self, name: str, *args: Any) -> Signature:
        return self.company.signature(f"company.{name}", args=args, task_id=name)

    def waiters(self) -> list[Waiter]:
        """What is kept of the turns' messages that were sent so far."""
        kept = []
        for message in [each for each in self.sent if each["headers"]["task"] == TASK]:
            self.sent.remove(message)
            body, properties = json.loads(base64.b64decode(message["body"])), message["properties"]
            raw = SimpleNamespace(
                headers=message["headers"], body=body, properties=properties, delivery_info={}, content_type=""
            )
            request = ShownRequest(raw, app=self.app, headers=raw.headers, body=body, decoded=True)
            kept.append(Waiter(request.id, request.id, *keep(request)))
        return kept

    def execute(self, waiter: Waiter, result: Outcome = None, **options: Any) -> Execution:
        ended = result or TurnResult(turn_id=waiter.turn_id, status=Status.COMPLETED)
        return self.executor.execute(waiter, lambda: ended, **options)

    def state(self, task_id: str) -> str:
        return str(AsyncResult(task_id, app=self.company).state)

    @property
    def ids(self) -> list[str]:
        """Of the tasks that were sent."""
        return [each["headers"]["id"] for each in self.sent]


@pytest.fixture
def bench(away: Away, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(away.url, monkeypatch)


ENDS = pytest.mark.parametrize(
    ("result", "state"), [(None, "SUCCESS"), (FAILED, "FAILURE"), (refused("t1", TurnCancelled()), "REVOKED")]
)


@ENDS
def test_errors_of_a_result_backend_that_answers_are_no_failure_of_the_task(
    bench: Bench, away: Away, result: TurnResult | None, state: str
) -> None:
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    with away.fails():
        assert not bench.execute(waiter, result).done
    assert bench.state("t1") == "PENDING"
    assert bench.execute(waiter, result).done
    assert bench.state("t1") == state


def test_chain_that_goes_on_into_a_chord_goes_on_once_the_chord_can_be_counted(bench: Bench, away: Away) -> None:
    header = group(bench.after("a"), bench.after("b"))
    chain(bench.turn(), chord(header, bench.after("body"))).apply_async()
    (waiter,) = bench.waiters()
    with away.fails():
        executed = bench.execute(waiter)
        assert not executed.done
    assert bench.state("t1") == "PENDING"
    later = Waiter(waiter.turn_id, waiter.task_id, waiter.follows, waiter.message, sent=frozenset(executed.sent))
    assert bench.execute(later).done
    assert (bench.state("t1"), sorted({"a", "b"} & set(bench.ids))) == ("SUCCESS", ["a", "b"])
    assert len(bench.ids) == len(set(bench.ids)), "none was sent twice"


def test_hiccup_of_a_result_backend_is_no_failure_of_the_task(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is over when Celery would store the failure."""
    fail_once(monkeypatch, type(bench.app.backend), "_store_result", ConnectionError("reset by peer"))
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    assert not bench.execute(waiter).done
    assert bench.state("t1") == "PENDING"
    assert bench.execute(waiter).done
    assert bench.state("t1") == "SUCCESS"


@ENDS
def test_state_that_is_told_late_replaces_none_that_is_final(
    bench: Bench, result: TurnResult | None, state: str
) -> None:
    """Of a worker that was frozen, for one."""
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    bench.executor.started(waiter, {"host": "here"})
    assert bench.state("t1") == "STARTED"
    bench.execute(waiter, result)
    bench.executor.started(waiter, {"host": "here"})
    bench.app.backend.mark_as_retry("t1", ValueError("parked"))
    assert bench.state("t1") == state


def test_turn_goes_on_where_its_start_cannot_be_stored(bench: Bench, away: Away) -> None:
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    with away.fails():
        bench.executor.started(waiter, {"host": "here"})
    assert bench.state("t1") == "PENDING"


def test_what_was_sent_is_not_sent_again_with_what_could_not_be(bench: Bench) -> None:
    turn = bench.turn()
    for name in ("first", "never", "last"):
        turn.link(bench.after(name))
    turn.apply_async()
    (waiter,) = bench.waiters()
    bench.refuse("never")
    executed = bench.execute(waiter)
    assert (executed.done, bench.ids) == (False, ["first"])
    later = Waiter(waiter.turn_id, waiter.task_id, waiter.follows, waiter.message, sent=frozenset(executed.sent))
    assert not bench.execute(later).done
    bench.refused.clear()
    assert bench.execute(later).done
    assert bench.ids == ["first", "never", "last"]


def test_what_can_never_be_written_is_a_failure_of_the_task_at_once(bench: Bench) -> None:
    turn = bench.turn()
    turn.link(bench.after("odd").set(serializer="a-serializer-of-theirs"))
    turn.apply_async()
    (waiter,) = bench.waiters()
    assert bench.execute(waiter).done
    assert (bench.state("t1"), bench.ids) == ("FAILURE", [])


def test_tries_to_tell_a_task_become_rare_and_never_end(bench: Bench, tmp_path: Path) -> None:
    turn = bench.turn()
    turn.link(bench.after("never"))
    turn.apply_async()
    bench.refuse("never")
    (waiter,) = bench.waiters()
    site = Site(tmp_path)
    tasks = WaitingTasks(bench.executor, site.ledger, site.now)
    asked = site.request(turn_id="t1", options={"lines": ["{}"]})
    site.ledger.queue.admit(asked, "t1", site.now(), follows=waiter.follows, message=waiter.message)
    site.ledger.queue.settle_unclaimed("t1", TurnResult(turn_id="t1", status=Status.COMPLETED), site.now())

    def tried() -> None:
        tasks.give_late(site.now())
        tasks.close(60)

    for pause_s in (15, 300, 300):
        tried()
        assert not site.ledger.waiters.unanswered(site.now() + pause_s - 5)
        assert site.ledger.waiters.unanswered(site.now() + pause_s)
        site.later += 8 * 86_400
    bench.refused.clear()
    tried()
    assert not tasks_of(site.ledger, "t1")
    assert (bench.state("t1"), bench.ids) == ("SUCCESS", ["never"])
    site.close()


# -- chords on Redis


def parts(bench: Bench, *header: Signature) -> list[Waiter]:
    """The turns of a chord, as they are kept."""
    chord(header)(bench.after("body"))
    return bench.waiters()


def test_chord_is_counted_until_its_body_was_sent(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if Redis goes away at the very moment at which the body cannot be sent."""
    bench = Bench(valkey.url, monkeypatch)
    first, second = parts(bench, bench.turn("t1"), bench.turn("t2"))
    assert bench.execute(first).done
    bench.refuse("body", lambda: valkey.client.replicaof("127.0.0.1", "1"))
    assert not bench.execute(second).done
    valkey.client.replicaof("NO", "ONE")
    assert (bench.state("body"), bench.ids) == ("PENDING", [])
    bench.refused.clear()
    assert bench.execute(second).done
    (body,) = bench.sent
    assert [each["turn_id"] for each in json.loads(base64.b64decode(body["body"]))[0][0]] == ["t1", "t2"]
    assert not valkey.client.keys("celery-taskset-meta-*")


def test_body_of_a_chord_fails_with_its_turn(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(valkey.url, monkeypatch)
    first, second = parts(bench, bench.turn("t1"), bench.turn("t2"))
    assert bench.execute(second, FAILED).done
    assert bench.execute(first).done
    assert (bench.state("body"), bench.ids) == ("FAILURE", [])


def test_chain_in_a_chord_ends_in_a_group(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(valkey.url, monkeypatch)
    splitting = chain(bench.turn("t2"), group(bench.turn("t3"), bench.turn("t4")))
    waiters = parts(bench, bench.turn("t1"), splitting)
    while waiters:
        waiter = waiters.pop(0)
        if not bench.execute(
            waiter
        ).done:  # Celery 5.6 and 5.7 expect one part less, and would wait in this thread
            waiters.append(waiter)
        waiters += bench.waiters()
    (body,) = bench.sent
    (results,) = json.loads(base64.b64decode(body["body"]))[0]
    assert json.loads(json.dumps(results), object_hook=lambda each: each.get("turn_id")) == ["t1", ["t3", "t4"]]


# -- what others see


def test_what_follows_is_shown_without_its_arguments(bench: Bench) -> None:
    """Its first one is what the agent said; others may be a producer's secrets."""
    turn = bench.turn()
    turn.link(bench.after("after", "s3cret-token"))
    turn.link(bench.after("shown").set(argsrepr="(as its producer wants)"))
    turn.apply_async()
    (waiter,) = bench.waiters()
    assert bench.execute(waiter).done
    shown = {each["headers"]["id"]: each["headers"]["argsrepr"] for each in bench.sent}
    assert shown == {"after": "(not shown)", "shown": "(as its producer wants)"}


def test_error_of_a_database_is_logged_without_what_was_to_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave_logging_alone()
    bench = Bench(Sqlite(tmp_path / "results.db").url, monkeypatch)
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    assert bench.state("t1") == "PENDING"
    with contextlib.closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON celery_taskmeta BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    failed = ErrorInfo(kind="agent_failed", message="the agent's words", retryable=False)
    with capture_logs() as logs:
        assert not bench.execute(waiter, FAILED.model_copy(update={"error": failed})).done
    assert "disk full" in str(logs)
    assert "Failed operation _store_result" in caplog.text, "by Celery"
    assert "the agent's words" not in str(logs) + caplog.text

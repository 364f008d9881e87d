"""Results reach everybody who asked, and a result backend in trouble holds up nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import signals

from adapters.errors import TurnCancelled
from adapters.protocol.result import TurnResult
from ops.errors import LedgerUnavailable
from ops.ledger import Waiter
from ops.ledger.queue.waiters import LEASE_S
from ops.metrics import WorkerMetrics
from tests.fakes.failures import fail_once
from tests.integration.turns.hosts.test_host_faults import running
from tests.support.fleets.site import Hooked, Site
from tests.support.ledgers import tasks_of
from tests.support.waiting import until
from workers.results import refused
from workers.tasks.delivery import Execution
from workers.tasks.waiting import WaitingTasks
from workers.worker.admission import Admitted

OPTIONS = {"lines": ["{}"]}
TURNS = 6  # more than there are threads for answers

# Celery's result backend in memory is one for the whole process: tasks have names that no other test uses.


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def admit(site: Site, worker: running, turn_id: str, task_id: str) -> None:
    document = site.request(options=OPTIONS, turn_id=turn_id).model_dump(mode="json", exclude_defaults=True)
    assert worker.admit(task_id, document) == Admitted()


def test_result_backend_that_hangs_holds_up_no_turn(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    answers_again = threading.Event()
    ids = [f"hung{number}" for number in range(TURNS)]
    with running(site) as worker:
        backend = type(worker.app.backend)  # Celery makes one for each thread
        store = backend.store_result

        def hang(*args: Any, **kwargs: Any) -> Any:
            answers_again.wait(60)
            return store(*args, **kwargs)

        monkeypatch.setattr(backend, "store_result", hang)
        worker.runtime.resize(2)
        for turn_id in ids:
            admit(site, worker, turn_id, turn_id)
        until(lambda: all(map(site.ledger.reports.result, ids)), "all turns to be settled")
        assert all(tasks_of(site.ledger, turn_id) for turn_id in ids)
        answers_again.set()
        until(lambda: not any(map(site.ledger.waiters.of, ids)), "all tasks to be told")
        assert [worker.told(task_id)["turn_id"] for task_id in ids] == ids


def test_copy_that_comes_while_others_are_being_told_is_told_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiters of a turn are read before the last of them has come."""
    telling, go_on = threading.Event(), threading.Event()
    with running(site) as worker:
        backend = type(worker.app.backend)
        store = backend.store_result

        def pause(self: Any, task_id: str, *args: Any, **kwargs: Any) -> Any:
            if not telling.is_set():
                telling.set()
                go_on.wait(60)
            return store(self, task_id, *args, **kwargs)

        monkeypatch.setattr(backend, "store_result", pause)
        admit(site, worker, "told-twice", "told-first")
        assert isinstance(worker("told-twice"), TurnResult)
        assert telling.wait(30)
        admit(site, worker, "told-twice", "told-second")
        assert worker.told("told-second")["turn_id"] == "told-twice"
        go_on.set()
        until(lambda: not tasks_of(site.ledger, "told-twice"), "both to be noted as told")


def test_result_that_could_not_be_stored_is_stored_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(site) as worker:
        backend = type(worker.app.backend)
        fail_once(monkeypatch, backend, "store_result", ConnectionError("away"))
        monkeypatch.setattr(backend, "exception_safe_to_retry", lambda _, error: error.args == ("away",))
        admit(site, worker, "stored-later", "asked-once")
        assert isinstance(worker("stored-later"), TurnResult)
        site.later += 60  # settled for long enough for somebody to look after it
        assert worker.told("asked-once")["turn_id"] == "stored-later"


class Executed(list[str]):
    """In the place of Celery: the tasks that it was to execute."""

    def execute(self, waiter: Waiter, work: Callable[[], object], *_: object, **__: object) -> Execution:
        """See `Executor.execute`."""
        work()
        self.append(waiter.task_id)
        return Execution(lambda: None, done=True)


def test_task_that_was_told_meanwhile_is_not_told_again(site: Site) -> None:
    """Somebody has read who waits, and comes to it only when somebody else has told them all."""
    executed, looked = Executed(), threading.Event()

    def tell_all_first(point: str) -> None:
        if point == "after waiters.of" and not looked.is_set():
            looked.set()
            tasks.give("t1")
            until(lambda: not tasks_of(site.ledger, "t1"), "all to be told by another one")

    ledger: Any = Hooked(site.ledger, tell_all_first)
    tasks = WaitingTasks(executed, ledger, site.now)  # type: ignore[arg-type]
    for task_id in ("a", "b"):
        site.ledger.queue.admit(site.request(turn_id="t1", options=OPTIONS), task_id, site.now())
    site.ledger.queue.settle_unclaimed("t1", refused("t1", TurnCancelled()), site.now())
    tasks.give("t1")
    until(looked.is_set, "the first to have looked")
    tasks.close(60)
    assert sorted(executed) == ["a", "b"]


class Hanging(Executed):
    """The same, which comes to no end until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def execute(self, waiter: Waiter, work: Callable[[], object], *_: object, **__: object) -> Execution:
        """See `Executor.execute`."""
        done = super().execute(waiter, work)
        self.go_on.wait(60)
        return done


def test_task_is_told_by_one_worker_for_as_long_as_that_takes(site: Site) -> None:
    """A copy of its message reaches another worker meanwhile, or that one looks for what is told late."""
    slow, other = Hanging(), Executed()
    telling, idle = (WaitingTasks(each, site.ledger, site.now) for each in (slow, other))  # type: ignore[arg-type]
    site.ledger.queue.admit(site.request(turn_id="t1", options=OPTIONS), "a", site.now())
    site.ledger.queue.settle_unclaimed("t1", refused("t1", TurnCancelled()), site.now())
    telling.give("t1")
    until(lambda: slow == ["a"], "the task to be told")
    for _ in range(3):
        site.later += LEASE_S - 5
        telling.give_late(site.now())
        idle.give("t1")
        idle.give_late(site.now())
        idle.close(60)
    assert (slow, other) == (["a"], [])
    site.later += LEASE_S + 1  # it was killed
    idle.give_late(site.now())
    idle.close(60)
    assert other == ["a"]
    slow.go_on.set()
    telling.close(60)


def test_turn_whose_work_fails_at_once_frees_its_place(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody learns where it runs then: its task must not wait for that."""
    fail_once(monkeypatch, WorkerMetrics, "turn_claimed", RuntimeError("a fault of ours"))
    with running(site) as worker:
        worker.runtime.resize(1)
        admit(site, worker, "failing", "failing")
        until(lambda: site.ledger.reports.turn("failing").state == "running", "it to be taken")
        until(lambda: worker.runtime.room() == 1, "its place to be free")
        assert isinstance(worker("failing"), TurnResult)


def test_claim_is_kept_before_the_body_of_its_task_is_reached(site: Site) -> None:
    """Handlers of signals come before that, and may take longer than a claim lasts."""
    kept: list[str] = []

    def heard(**_: object) -> None:
        kept.extend(claim.turn_id for claim in worker.claim_keeper.claims)

    signals.task_prerun.connect(heard)
    try:
        with running(site) as worker:
            admit(site, worker, "prepared", "prepared")
            assert isinstance(worker("prepared"), TurnResult)
            until(lambda: not worker.claim_keeper.claims, "its claim to be let go")
    finally:
        signals.task_prerun.disconnect(heard)
    assert kept == ["prepared"]


def test_worker_has_the_task_to_itself_from_when_the_ledger_answers(site: Site) -> None:
    """It was away when the turn was to be settled, for longer than the lease of a task lasts."""
    turn_id, away = site.queue(options=OPTIONS), iter([True])

    def stay_away(point: str) -> None:
        if point == "before queue.settle" and next(away, False):
            site.later += 2 * LEASE_S
            raise LedgerUnavailable("the ledger is away")

    assert isinstance(asyncio.run(site.work(turn_id, stay_away)), TurnResult)
    assert tasks_of(site.ledger, turn_id) == {turn_id}
    assert site.ledger.waiters.unanswered(site.now()) == []

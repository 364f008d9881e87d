"""Whether a process is alive and ready, and why not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ops.health import Dependency, Health
from ops.metrics import new_registry
from ops.status_server import StatusServer
from tests.support.pages import verdict
from tests.support.waiting import until


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failing(text: str) -> Callable[[], None]:
    def fail() -> None:
        raise ConnectionError(text)

    return fail


def test_dependency_that_answers_is_no_problem() -> None:
    broker = Dependency("broker", lambda: None)
    assert broker.problem() == "not checked yet"
    broker.ask()
    assert (broker.problem(), broker.answers()) == (None, True)


def test_dependency_says_in_one_line_what_is_wrong() -> None:
    broker = Dependency("broker", failing("refused\n by 10.0.0.5"))
    broker.ask()
    assert (broker.problem(), broker.answers()) == ("refused by 10.0.0.5", False)


def test_dependency_that_hangs_is_a_problem_after_a_while() -> None:
    clock = Clock()
    ledger = Dependency("ledger", lambda: None, silent_s=15.0, clock=clock)
    ledger.ask()
    clock.now = 15.0
    assert ledger.answers()
    clock.now = 16.0
    assert ledger.problem() == "no answer for 16 s"


def test_dependency_is_asked_again_and_again_until_the_end() -> None:
    asked = threading.Semaphore(0)
    dependency = Dependency("ledger", asked.release, period_s=0.001)
    health = Health(str)
    health.need(dependency)
    with health:
        for _ in range(3):
            assert asked.acquire(timeout=60)
    until(lambda: "health-ledger" not in {thread.name for thread in threading.enumerate()}, "its thread's end")


@pytest.fixture
def health() -> Health:
    return Health(lambda text: text.replace("hunter2", "[redacted]"))


def test_process_without_a_fault_is_alive_and_ready(health: Health) -> None:
    health.dead_if("event_loop", lambda: None)
    with StatusServer(new_registry(), health, "127.0.0.1", 0) as server:
        assert verdict(f"{server.url}/livez") == (200, {})
        assert verdict(f"{server.url}/readyz") == (200, {})


def test_process_that_is_not_ready_says_why_and_stays_alive(health: Health) -> None:
    broker = Dependency("broker", failing("no broker at redis://:hunter2@10.0.0.5"))
    health.need(broker)
    health.unready_if("stopping", lambda: "it takes no more turns")
    broker.ask()
    with StatusServer(new_registry(), health, "127.0.0.1", 0) as server:
        assert verdict(f"{server.url}/livez") == (200, {})
        assert verdict(f"{server.url}/readyz") == (
            503,
            {"broker": "no broker at redis://:[redacted]@10.0.0.5", "stopping": "it takes no more turns"},
        )


def test_process_that_is_dead_is_not_ready_either(health: Health) -> None:
    health.dead_if("event_loop", lambda: "it has stood still for 61 s")
    with StatusServer(new_registry(), health, "127.0.0.1", 0) as server:
        for path in ("livez", "readyz"):
            assert verdict(f"{server.url}/{path}") == (503, {"event_loop": "it has stood still for 61 s"})

"""Doctor's requests to workers: checks come from their environments, equal ones once, and nobody waits forever."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker import control

from adapters.errors import InvalidRequest
from workers.doctor.check import Check
from workers.doctor.workers import COMMAND, ask, serve

LOCAL = Check("tools", True, "all found", host="local")
BROKEN = Check("agent x", False, "not usable", "install it; its key is secret", host="local")
SSH = Check("reach", True, "a shell", host="far")


class Workers:
    """An application whose workers answer in this process, or not at all."""

    def __init__(self, **examine: Callable[[str | None, bool], Iterable[Check]] | None) -> None:
        self.control = self
        self.now = 0.0
        self.hangs = threading.Event()
        self._panels: dict[str, Any] = {}
        for name, checks in examine.items():
            if checks is None:
                continue
            serve(checks, lambda text: text.replace("secret", "***"))
            self._panels[name] = control.Panel.data.pop(COMMAND)

    def broadcast(
        self,
        command: str,
        arguments: dict[str, Any],
        destination: list[str],
        reply: bool,
        timeout: float,
        limit: int,
    ) -> list[dict[str, Any]]:
        assert (command, reply, limit) == (COMMAND, True, len(destination))
        told = [name for name in destination if name in self._panels]
        self.now += 0.0 if told else timeout
        return [{name: self._panels[name](SimpleNamespace(hostname=name), **arguments)} for name in told]

    def sleep(self, seconds: float) -> None:
        """Let the examining threads run; time passes only once a worker hangs."""
        os.sched_yield()
        if self.hangs.is_set():
            self.now += seconds


@pytest.fixture(autouse=True)
def panel() -> Iterator[None]:
    before = dict(control.Panel.data)
    yield
    control.Panel.data.clear()
    control.Panel.data.update(before)


def _asked(workers: Workers, *names: str) -> list[Check]:
    return list(ask(workers, names, None, 60.0, lambda: workers.now, workers.sleep))  # type: ignore[arg-type]


def test_equal_checks_come_once_and_the_first_worker_alone_examines_ssh_hosts() -> None:
    def examine(only: str | None, over_ssh: bool) -> Iterator[Check]:
        assert only is None
        yield LOCAL
        if over_ssh:
            yield SSH

    found = _asked(Workers(a=examine, b=examine), "a", "b")
    assert [(check.name, check.host, check.workers) for check in found] == [
        ("tools", "local", ("a", "b")),
        ("reach", "far", ("a",)),
    ]


def test_workers_that_find_different_things_are_told_apart_and_secrets_are_redacted() -> None:
    workers = Workers(a=lambda *_: [LOCAL], b=lambda *_: [LOCAL, BROKEN])
    found = _asked(workers, "a", "b")
    assert [(check.name, check.workers) for check in found] == [
        ("tools", ("a",)), ("tools", ("b",)), ("agent x", ("b",)),
    ]  # fmt: skip
    assert found[-1].remedy == "install it; its key is ***"


def test_examination_that_fails_is_a_check() -> None:
    def examine(only: str | None, over_ssh: bool) -> Iterator[Check]:
        yield LOCAL
        raise ZeroDivisionError

    found = _asked(Workers(a=examine), "a")
    assert [(check.name, check.ok, check.detail) for check in found] == [
        ("tools", True, "all found"), ("hosts", False, "ZeroDivisionError"),
    ]  # fmt: skip


def test_worker_that_does_not_finish_is_told_with_what_it_has_found() -> None:
    released = threading.Event()

    def examine(only: str | None, over_ssh: bool) -> Iterator[Check]:
        yield LOCAL
        workers.hangs.set()
        released.wait()

    workers = Workers(a=examine)
    try:
        found = _asked(workers, "a")
    finally:
        released.set()
    assert [(check.name, check.ok) for check in found] == [("tools", True), ("worker", False)]
    assert "no answer within" in found[-1].detail


def test_worker_that_has_left_is_told() -> None:
    (check,) = _asked(Workers(a=None), "a")
    assert (check.name, check.ok, check.workers) == ("worker", False, ("a",))


def test_worker_of_a_version_without_the_command_is_told() -> None:
    workers = Workers(a=lambda *_: [LOCAL])
    workers._panels["a"] = lambda *_, **__: {"error": "No such command"}
    (check,) = _asked(workers, "a")
    assert (check.ok, check.detail) == (False, "No such command")


def test_host_that_the_worker_does_not_have_is_told() -> None:
    def examine(only: str | None, over_ssh: bool) -> Iterator[Check]:
        raise InvalidRequest(f"there is no host {only}", field="host")
        yield

    workers = Workers(a=examine, b=lambda *_: [])
    (check,) = ask(workers, ["a", "b"], "far", 60.0, lambda: workers.now, workers.sleep)  # type: ignore[arg-type]
    assert (check.ok, check.detail, check.workers) == (False, "the worker has no host far", ("a",))


def test_worker_keeps_few_examinations() -> None:
    count = 0

    def examine(only: str | None, over_ssh: bool) -> Iterator[Check]:
        nonlocal count
        count += 1
        yield LOCAL

    serve(examine, str)
    doctor: Any = control.Panel.data[COMMAND]
    worker = SimpleNamespace(hostname="a")
    for ticket in "abcdefab":
        while not doctor(worker, ticket=ticket, only=None, over_ssh_by="a")["done"]:
            pass
    assert count == 8

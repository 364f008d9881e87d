"""A turn that does not start: whoever waits for it is told once what for."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from adapters.protocol.request import TurnRequest
from ops.errors import LedgerUnavailable
from ops.ledger import Ledger
from tests.integration.cli.conftest import Cli
from tests.support.ledgers import new_ledger
from tests.support.waiting import until
from tests.unit.workers.cli.test_live_view import price, wire
from workers.cli.live_view import show_live
from workers.cli.wait_reason import reason_to_wait, with_notice
from workers.events.model import AgentChosen, AttemptStarted

NOW = 1_800_000_000.0
WAIT_S = 60.0


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty one."""
    with Ledger.open(new_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")) as ledger:
        yield ledger


def _request(turn_id: str) -> TurnRequest:
    return TurnRequest(turn_id=turn_id, prompt="x", workspace="/x")


def _shown(turn: Iterator[dict[str, Any]], reason: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("workers.cli.live_view.with_notice", lambda events, tell: with_notice(events, tell, 0.01))
    screen = io.StringIO()
    show_live(turn, price, time.time, console=Console(file=screen), waits_for=reason)
    return screen.getvalue()


def test_run_says_once_what_a_silent_turn_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def reason() -> str:
        asked.set()
        return "waiting for a free slot"

    def events() -> Iterator[dict[str, Any]]:
        chosen, started = wire(AgentChosen("scripted", "free"), AttemptStarted(1, "scripted", "local"))
        yield chosen
        assert asked.wait(WAIT_S)
        yield started

    said = _shown(events(), reason, monkeypatch)
    assert said.count("waiting for a free slot") == 1
    assert "▸ scripted on local, attempt 1" in said


def test_run_goes_on_without_a_reason_when_the_ledger_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def reason() -> str:
        asked.set()
        raise LedgerUnavailable("gone")

    def events() -> Iterator[dict[str, Any]]:
        assert asked.wait(WAIT_S)
        yield from wire(AttemptStarted(1, "scripted", "local"))

    assert "attempt 1" in _shown(events(), reason, monkeypatch)


def test_turn_that_starts_at_once_is_not_explained() -> None:
    told = threading.Event()
    events = with_notice(wire(AttemptStarted(1, "scripted", "local")), told.set, WAIT_S)
    assert [event["event"] for event in events] == ["attempt_started"]
    running = threading.enumerate
    until(lambda: not [each for each in running() if isinstance(each, threading.Timer)], "the timer to be gone")
    assert not told.is_set()


def test_queued_turn_waits_for_a_slot(ledger: Ledger) -> None:
    ledger.queue.submit_many([_request("a"), _request("b")], NOW)
    assert reason_to_wait(ledger, "a", NOW) == (
        "waiting for a free slot on an eligible host; running agents: none; other turns in the queue: 1. "
        "See: runturn top"
    )


def test_parked_turn_waits_for_what_it_was_parked_for(ledger: Ledger) -> None:
    ledger.queue.submit_many([_request("a")], NOW)
    (claim,) = ledger.queue.take("w", lambda _: True, NOW, 15.0, 1)
    assert reason_to_wait(ledger, "a", NOW) is None
    ledger.queue.wait(claim, NOW + 60, "session_in_use", NOW)
    said = reason_to_wait(ledger, "a", NOW)
    assert said is not None
    assert said.startswith(
        "waiting (session_in_use: Another turn is running in this agent session); next check at"
    )


def test_turn_that_is_to_start_later_says_when(ledger: Ledger) -> None:
    ledger.queue.admit(_request("a"), "a", NOW, NOW + 3600)
    assert str(reason_to_wait(ledger, "a", NOW)).startswith("starts at ")


def test_history_shows_what_a_parked_turn_waits_for_as_no_failure(cli: Cli, tmp_path: Path) -> None:
    cli("history")
    with Ledger.open(f"sqlite:///{tmp_path}/state/ledger.sqlite3") as ledger:
        ledger.queue.submit_many([_request("a")], NOW)
        (claim,) = ledger.queue.take("w", lambda _: True, NOW, 15.0, 1)
        ledger.queue.wait(claim, NOW + 60, "overloaded", NOW)
    assert "waiting  overloaded" in cli("history").out

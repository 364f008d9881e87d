"""The ways to a turn that runs: the command line, asyncio, RabbitMQ; and what nobody gets to see on them."""

from __future__ import annotations

import asyncio
import io
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.errors import InvalidRequest
from adapters.live import Control, ControlRequest, Verdict
from adapters.protocol.request import MAX_PROMPT_BYTES
from tests.integration.celery.test_pool import events_of
from tests.integration.cli.conftest import Cli, cli
from tests.support.brokers.node import Vhost
from tests.support.claiming import claim_turn
from tests.support.fleets.live_fleet import LiveFleet, LiveRabbitFleet, Talking
from tests.support.leaks import places
from tests.support.waiting import until
from workers.app import create_app
from workers.client.aio import AsyncClient
from workers.client.control import message
from workers.errors import BrokerUnavailable, ControlFailed, ControlRefused, ControlTimeout
from workers.live.messages import decode, encode

__all__ = ["cli"]  # a fixture

TEXT = f"tell nobody {secrets.token_hex(8)}"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFleet]:
    """A fleet with two workers that log as much as they can; who does not hold a turn is silent."""
    with LiveFleet(tmp_path_factory.mktemp("ways"), log_level="debug") as fleet:
        for _ in range(2):
            fleet.start_worker()
        yield fleet


@pytest.fixture
def fleet_cli(cli: Cli, fleet: LiveFleet, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, talking to this fleet."""
    for name, value in fleet.environment.items():
        monkeypatch.setenv(name, value)
    return cli


@pytest.fixture
def turn(fleet: LiveFleet, recording: Path) -> Iterator[Talking]:
    """A turn that runs."""
    turn = fleet.talking(recording)
    yield turn
    turn.finish()


def test_command_line_asks_and_says_what_came_of_it(
    fleet_cli: Cli, fleet: LiveFleet, turn: Talking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"two\nlines")))
    assert fleet_cli("interrupt", turn) == (0, f"turn {turn} interrupted\n", "")
    assert fleet_cli("send", turn, "-", "--json") == (0, "{}\n", "")
    changed = fleet_cli("control", "set-model", turn, "claude-opus-5")
    assert changed == (0, f"turn {turn} switched to claude-opus-5\n", "")
    assert fleet_cli("control", "server-info", turn).document == {"commands": ["compact"]}
    refused = fleet_cli("control", "set-permission-mode", turn, "yolo")
    assert refused == (2, "", f"runturn: turn {turn}: value: has to be default or plan\n")
    failed = fleet_cli("send", turn, "fail")
    assert failed == (1, "", f"runturn: turn {turn}: turn_failed: the agent does not want to\n")
    assert fleet_cli("interrupt", "nobody's") == (
        2,
        "",
        "runturn: the ledger has no turn nobody's; see: runturn history\n",
    )
    assert fleet_cli("answer", turn, "toolu_1", "allow").status == 2
    assert fleet.noted(turn, "controls")[:3] == [
        ["interrupt", None], ["send", "two\nlines"], ["set_model", "claude-opus-5"],
    ]  # fmt: skip


def test_watch_shows_a_question_and_how_to_answer_it(fleet_cli: Cli, fleet: LiveFleet, recording: Path) -> None:
    turn = fleet.talking(recording, prompt="ask me")
    until(lambda: fleet.has(turn, "permission_requested"), "the question")
    told = fleet_cli("answer", turn, "toolu_1", "deny", "--reason", "not that", "--json").document
    assert (told["request_id"], told["allowed"], told["reason"]) == ("toolu_1", False, "not that")
    turn.finish()
    shown = fleet_cli("watch", turn).err
    assert '? asks to use Bash: {"command":"rm -rf /","env":{"KEY":"[redacted:key]"}}' in shown
    assert f"runturn answer {turn} toolu_1 allow|deny" in shown
    assert f"! denied by {told['by']}: not that" in shown


def test_asyncio_client_asks_without_blocking_its_loop(fleet: LiveFleet, turn: Talking) -> None:
    async def ask() -> list[object]:
        async with AsyncClient(create_app(fleet.broker.url), fleet.ledger) as client:
            hanging = asyncio.create_task(
                client.control(turn, ControlRequest(Control.SEND, "hang"), timeout_s=600)
            )
            infos = [client.control(turn, ControlRequest(Control.SERVER_INFO)) for _ in range(5)]
            answers: list[object] = list(await asyncio.gather(*infos))
            assert not hanging.done()
            hanging.cancel()
            with pytest.raises(ControlFailed, match="timeout"):
                await client.control(turn, ControlRequest(Control.SEND, "hang"), timeout_s=1)
            with pytest.raises(ControlRefused, match="has no open question"):
                await client.answer(turn, "toolu_1", Verdict(True))
            return answers

    assert asyncio.run(ask()) == [{"commands": ["compact"]}] * 5


def test_text_that_is_sent_is_told_to_nobody_else(fleet: LiveFleet, turn: Talking) -> None:
    app = create_app(fleet.broker.url)
    with events_of(app) as seen:
        fleet.client.control(turn, ControlRequest(Control.SEND, TEXT))
        with pytest.raises(ControlFailed):
            fleet.client.control(turn, ControlRequest(Control.SEND, f"fail {TEXT}"))
        until(lambda: seen, "an event of Celery's")
        shown = app.control.inspect(timeout=60, limit=2).active()
    turn.finish()
    fleet.result(turn)
    fleet.assert_nothing_left()  # its spool is removed after that
    assert TEXT in str(fleet.noted(turn, "controls"))
    evidence = {
        "events": str(fleet.events(turn)).encode(),
        "monitors": (str(seen) + str(shown)).encode(),
        **{str(file): file.read_bytes() for file in fleet.state.root.rglob("*") if file.is_file()},
    }
    assert any(name.endswith(".log") for name in evidence)
    assert places(TEXT, evidence) == set()


def test_turn_is_talked_to_over_rabbitmq(tmp_path: Path, vhost: Vhost, recording: Path) -> None:
    with LiveRabbitFleet(tmp_path, vhost) as fleet:
        fleet.start_worker()
        turn = fleet.talking(recording, prompt="ask me")
        until(lambda: fleet.has(turn, "permission_requested"), "the question")
        assert fleet.client.control(turn, ControlRequest(Control.SERVER_INFO)) == {"commands": ["compact"]}
        assert fleet.client.answer(turn, "toolu_1", Verdict(True))["allowed"] is True
        until(lambda: fleet.noted(turn, "verdicts") == [[True, ""]], "the agent to hear of it")
        turn.finish()
        fleet.result(turn)


def test_who_cannot_be_reached_is_told_apart(tmp_path: Path) -> None:
    with LiveFleet(tmp_path) as fleet:
        turn = fleet.client.enqueue(fleet.request(agent="talkative"))
        with pytest.raises(ControlRefused, match="is waiting for a worker: no agent is running yet"):
            fleet.client.control(turn, ControlRequest(Control.INTERRUPT))
        claim_turn(fleet.ledger, turn, "a worker that was killed", time.time(), 60)
        with pytest.raises(ControlTimeout, match=r"no worker reports holding turn .*; retry with request id i:"):
            fleet.client.control(turn, ControlRequest(Control.INTERRUPT), request_id="i", timeout_s=0.3)
        fleet.broker.stop()
        with pytest.raises(BrokerUnavailable, match="the broker did not accept the request"):
            fleet.client.control(turn, ControlRequest(Control.INTERRUPT))


@pytest.mark.parametrize(
    ("control", "value", "why"),
    [
        (Control.SEND, None, "text: is empty"),
        (Control.SET_MODEL, "", "model: is empty"),
        (Control.INTERRUPT, "now", "interrupt takes no value"),
        (Control.SEND, "x" * (MAX_PROMPT_BYTES + 1), "is longer than"),
    ],
)
def test_request_that_makes_no_sense_is_refused_at_once(control: Control, value: str | None, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        message("issue-4711", ControlRequest(control, value), None, None, 1.0)


def test_message_of_another_version_is_refused_without_its_text() -> None:
    said = message("issue-4711", ControlRequest(Control.SEND, TEXT), "r", "ann", 1.0)
    assert decode(encode(said)) == said
    assert TEXT not in repr(said)
    for wrong in ({"control": "dance"}, {"mood": TEXT}, {"control": None}):
        with pytest.raises(ValueError, match="not understood") as refused:
            decode({**encode(said), **wrong})
        assert TEXT not in str(refused.value)

"""No broker, no worker, no room, no right to write: said in one line, and nothing is lost."""

from __future__ import annotations

import os
import shlex
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from tests.integration.cli.conftest import Cli
from tests.support.fleets.fleet import RUNTURN, Fleet
from tests.support.needs import need_private_mounts
from tests.support.waiting import until
from workers.brokers.embedded import EmbeddedBroker

NO_BROKER = "redis://:s3cret-word@127.0.0.1:1/0"
EVERYTHING = (
    "run x",
    "enqueue x",
    "watch t",
    "result t",
    "cancel t",
    "history",
    "cost",
    "worker",
    "up",
    "exporter",
)


def _one_line(text: str, *parts: str) -> None:
    assert text.count("\n") == 1, text
    for part in parts:
        assert part in text


@pytest.mark.parametrize("command", ["run x", "enqueue x", "worker", "up"])
def test_broker_that_does_not_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("RUNTURN_BROKER_URL", NO_BROKER)
    said = cli(*command.split())
    assert (said.status, said.out) == (3, "")
    _one_line(said.err, "no broker answers at redis://", "RUNTURN_BROKER_URL")
    assert "s3cret-word" not in said.err
    assert cli("history", "--json").document == []


@pytest.mark.parametrize("url", ["nonsense", "carrier-pigeon://here", "redis://here:port/0", "redis://[::/0"])
def test_broker_url_that_makes_no_sense(cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("RUNTURN_BROKER_URL", url)
    said = cli("enqueue", "x")
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, "RUNTURN_BROKER_URL", "redis://HOST")


def test_result_url_that_makes_no_sense(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_RESULT_URL", "carrier-pigeon://here")
    said = cli("enqueue", "x")
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, "RUNTURN_RESULT_URL", "redis://HOST")


@pytest.mark.parametrize("broker", ["stopped", "running"])
def test_run_without_a_worker_queues_nothing(cli: Cli, tmp_path: Path, broker: str) -> None:
    embedded = EmbeddedBroker(tmp_path / "state" / "broker")
    if broker == "running":
        embedded.ensure()
    said = cli("run", "x")
    assert (said.status, said.out) == (3, "")
    _one_line(said.err, "no worker is running", "runturn up")
    assert embedded.running() == (broker == "running")
    assert cli("history", "--json").document == []


def test_turn_queued_without_a_worker_waits_for_one(cli: Cli) -> None:
    said = cli("enqueue", "x")
    assert (said.status, said.err) == (0, "")
    turn_id = said.out.strip()
    assert cli("history", "--status", "queued", "--json").document[0]["turn_id"] == turn_id
    late = cli("result", turn_id, "--timeout", "0")
    assert (late.status, late.out) == (3, "")
    _one_line(late.err, turn_id, "it is still running")


def test_cancel_of_a_queued_turn_needs_no_worker(cli: Cli) -> None:
    turn_id = cli("enqueue", "x", "--json").document["turn_id"]
    said = cli("cancel", turn_id, "--json")
    assert (said.status, said.document["was_open"], said.document["result"]["status"]) == (0, True, "cancelled")
    assert cli("cancel", turn_id, "--json").document["was_open"] is False
    ended = cli("result", turn_id)
    assert ended.status == 1
    assert "turn_cancelled" in ended.out


@pytest.mark.parametrize("command", [*EVERYTHING, "down"])
def test_state_directory_that_cannot_be_made(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RUNTURN_STATE_DIR", str(tmp_path / "file" / "state"))
    said = cli(*command.split())
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, "state_dir", "cannot be written", "set RUNTURN_STATE_DIR")


@pytest.mark.parametrize("command", EVERYTHING)
def test_ledger_of_a_newer_version(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    cli("history")
    with sqlite3.connect(tmp_path / "state" / "ledger.sqlite3") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    EmbeddedBroker(tmp_path / "state" / "broker").ensure()  # so that nothing else stops `run`
    monkeypatch.setattr("workers.cli.context.Context.require_worker", lambda _: None)
    said = cli(*command.split())
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, "schema 9999", "upgrade runturn here", "RUNTURN_LEDGER_URL")


@pytest.mark.parametrize(
    "name", ["RUNTURN_AGENT__TURN_TIMEOUT_MS", "RUNTURN_AGENT__MAX_ATTEMPTS", "RUNTURN_COLOUR"]
)
def test_setting_that_is_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-1")
    said = cli("history")
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, name)


@pytest.mark.parametrize("command", ["up", "worker", "exporter"])
def test_port_that_is_taken(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "RUNTURN_STATE_DIR": str(tmp_path / "state"),
            "RUNTURN_METRICS_PORT": port,
        }
        said = subprocess.run([*RUNTURN, command], env=environment, capture_output=True, text=True, check=False)
    broker = EmbeddedBroker(tmp_path / "state" / "broker")
    assert broker.stop() == (command == "worker")  # `up` has stopped the one that it started
    assert (said.returncode, said.stdout) == (2, "")
    _one_line(said.stderr, f"127.0.0.1:{port}", "in use", "RUNTURN_METRICS_PORT")


def _start_on_small_disk(fleet: Fleet, size: str, then: str) -> None:
    """Start a worker that has its spool on a disk of that size, after doing something there."""
    need_private_mounts()
    # The mount is seen by the worker and its turns only, and goes with them.
    spool = shlex.quote(str(fleet.state.spool))
    prepare = f"mount -t tmpfs -o size={size} none {spool} && cd {spool} && {then}"
    fleet.start_worker(prefix=("unshare", "-rm", "sh", "-c", f'{prepare}; exec "$@"', "sh"))


def test_turn_waits_for_room_under_the_spool(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    free = f"(until [ -e {shlex.quote(str(tmp_path / 'free'))} ]; do sleep 0.1; done; rm hog) & :"
    _start_on_small_disk(fleet, "4m", f"! cat /dev/zero 2>&- >hog; {free}")
    turn_id = fleet.client.enqueue(fleet.recorded(recording))
    until(lambda: "waits for room" in fleet.workers[0].log.read_text(), "the turn to wait for room")
    (tmp_path / "free").touch()
    result = fleet.result(turn_id)
    assert (result.status, result.attempts) == (Status.COMPLETED, 1)


def test_full_disk_under_the_spool_fails_the_turn_once(fleet: Fleet, recording: Path) -> None:
    _start_on_small_disk(fleet, "64k", "! cat /dev/zero 2>&- >everything")
    result = fleet.run(fleet.recorded(recording, turn_timeout_ms=9000))
    assert result.error is not None
    assert (result.status, result.error.kind, result.attempts) == (Status.FAILED, "spool_unwritable", 1)
    assert not result.error.retryable
    assert "disk that holds the spool is full" in result.error.message
    assert "free some space" in result.error.message


def test_disk_that_fills_in_mid_turn_fails_the_turn_once(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    _start_on_small_disk(fleet, "2m", "true")
    endless = tmp_path / "endless.jsonl"
    endless.write_bytes(recording.read_bytes() * (3_000_000 // recording.stat().st_size))
    result = fleet.run(fleet.recorded(endless))
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("spool_unwritable", 1)
    assert "free some space" in result.error.message

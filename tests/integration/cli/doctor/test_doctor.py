"""`runturn doctor`: whatever is broken, it says so, and goes on."""

from __future__ import annotations

import re
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from adapters.registry import BUILT_IN
from ops.ledger import DeadLetter, Ledger
from tests.integration.cli.conftest import Cli
from tests.integration.cli.test_dead import ROW
from tests.support.fleets.fleet import Fleet
from workers.brokers.embedded import EmbeddedBroker
from workers.doctor.check import Check, bounded, unanswered


def _checks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in document["checks"]}


def test_fleet_in_order(fleet_cli: Cli) -> None:
    said = fleet_cli("doctor", "--json")
    checks = _checks(said.document)
    assert (said.status, said.document["healthy"]) == (0, True)
    assert list(checks) == [
        "configuration", "state directory", "ledger", "dead letters", "broker", "worker",
        "tools", "spool directory", "isolation", *(f"agent {entry.name}" for entry in BUILT_IN), "spools",
    ]  # fmt: skip
    assert [check["host"] for check in checks.values()] == [None] * 6 + ["local"] * (4 + len(BUILT_IN))
    assert (
        "only turns that ask for it need it" in checks["agent claude-code"]["detail"]
    )  # it is missing on purpose
    assert checks["spools"]["detail"] == "0 running, 0 left over"
    assert checks["broker"]["detail"].startswith("redis+socket://")
    assert checks["worker"]["detail"].startswith("runturn@")
    assert checks["tools"]["workers"] == [checks["worker"]["detail"]]
    assert f"host local (examined by {checks['worker']['detail']})\n" in fleet_cli("doctor").out


@pytest.mark.parametrize("arguments", [(), ("--host", "local")])
def test_worker_examines_its_host_in_its_own_environment(
    fleet_cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no turn could run in the caller's
    said = fleet_cli("doctor", "--json", *arguments)
    assert (said.status, _checks(said.document)["tools"]["ok"]) == (0, True)


def test_fresh_machine_is_told_what_to_do_and_nothing_is_started(cli: Cli, tmp_path: Path) -> None:
    said = cli("doctor")
    assert (said.status, said.err) == (1, "")
    assert (
        "✗ broker            the embedded broker is not running\n    → start it, with a worker: runturn up"
        in said.out
    )
    assert not EmbeddedBroker(tmp_path / "state" / "broker").running()


def test_worker_of_other_queues_is_told(fleet_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_QUEUES", '["turns"]')
    monkeypatch.setattr("workers.doctor.installation._PING_S", 4.0)
    check = _checks(fleet_cli("doctor", "--json").document)["worker"]
    assert not check["ok"]
    assert re.fullmatch(r"no answering worker consumes turns: runturn@\S+ consumes runturn", check["detail"])


def test_broker_that_may_lose_its_last_messages_is_a_warning(crew: Fleet, fleet_cli: Cli) -> None:
    with redis.Redis(unix_socket_path=str(crew.broker.socket)) as client:
        client.config_set("appendfsync", "everysec")
        said = fleet_cli("doctor", "--json")
        client.config_set("appendfsync", "always")
    check = _checks(said.document)["broker"]
    assert (said.status, check["ok"], check["warning"]) == (0, True, True)
    assert "it may lose its last messages when it is killed" in check["detail"]
    assert check["remedy"] == "set appendfsync always"


def test_missing_agent_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_AGENT__COMMAND", "/nowhere/claude")
    check = _checks(cli("doctor", "--json").document)["agent claude-code"]
    assert (check["ok"], check["detail"]) == (False, "/nowhere/claude is not usable")
    assert "RUNTURN_AGENT__COMMAND" in check["remedy"]


@pytest.mark.parametrize(
    ("name", "value", "broken", "words"),
    [
        ("RUNTURN_AGENT__KIND", "clod", "configuration", "no agent 'clod'"),
        ("RUNTURN_METRICS_PORT", "x", "configuration", "metrics_port"),
        ("RUNTURN_STATE_DIR", "/dev/null/x", "state directory", "cannot be written"),
        ("RUNTURN_BROKER_URL", "redis://127.0.0.1:1/0", "broker", "no broker answers"),
        ("RUNTURN_BROKER_URL", "pigeon://x", "broker", "RUNTURN_BROKER_URL"),
        ("RUNTURN_LEDGER_URL", "sqlite:////nowhere/ledger", "ledger", "ledger"),
        ("RUNTURN_TOOLS", '["nowhere:lookup"]', "tool functions", "tool 'lookup' cannot be loaded"),
        ("RUNTURN_INCLUDE", '["json", "nowhere.at.all"]', "included modules", "there is no module nowhere.at.all"),
        ("PATH", "/nowhere", "tools", "no shell"),
    ],
)
def test_one_thing_broken(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, broken: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    said = cli("doctor", "--json")
    check = _checks(said.document)[broken]
    assert (said.status, check["ok"]) == (1, False)
    assert words in check["detail"]


def test_newer_ledger_is_an_outcome(cli: Cli, tmp_path: Path) -> None:
    cli("history")
    database = sqlite3.connect(tmp_path / "state" / "ledger.sqlite3")
    database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.commit()
    database.close()
    assert "schema 9999" in _checks(cli("doctor", "--json").document)["ledger"]["detail"]


def test_dead_letters_are_something_to_see_to(cli: Cli, tmp_path: Path) -> None:
    cli("history")
    with Ledger.open(f"sqlite:///{tmp_path}/state/ledger.sqlite3") as ledger:
        ledger.dead_letters.keep(DeadLetter(ROW, b"{"))
    check = _checks(cli("doctor", "--json").document)["dead letters"]
    assert (check["ok"], check["detail"]) == (False, "1 waiting")
    assert "runturn dead list" in check["remedy"]


def test_check_that_raises_anything_is_an_outcome() -> None:
    def broken() -> Check:
        raise ZeroDivisionError

    assert bounded("x", broken) == Check("x", False, "ZeroDivisionError")


def test_check_that_takes_too_long_by_its_own_account_is_told_from_one_that_hangs() -> None:
    def slow() -> Check:
        raise TimeoutError("the broker is slow")

    assert bounded("x", slow) == Check("x", False, "the broker is slow")


def test_check_that_hangs_is_an_outcome() -> None:
    hanging = threading.Event()

    def hang() -> Check:
        hanging.wait()
        return Check("x", True, "")

    assert bounded("x", hang, timeout_s=0.05) == unanswered("x", 0.05)
    hanging.set()

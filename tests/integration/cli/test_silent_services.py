"""A broker or ledger that is dead, or accepts and never answers: every command says so within ten seconds."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from typing import NamedTuple

import psycopg
import pytest
import redis

from tests.support.fleets.fleet import RUNTURN, Fleet
from tests.support.ledger.postgresql_server import PostgresqlServer
from tests.support.waiting import Slowness, slowness, text_of, until

ANSWER_S = 10.0
BUSY = 5  # a command that waits for services has more to do than the one that is timed beside it
AT_ONCE = 3  # commands
NEED_A_BROKER = (
    "enqueue x",
    "run x",
    "session x --test true",
    "interrupt t",
    "send t hello",
    "answer t question allow",
    "control set-model t other",
    "control server-info t",
    "worker",
    "up",
    "flower --port 0",
)
NEED_NO_BROKER = (
    "top --once",
    "history",
    "cost",
    "budget list",
    "dead list",
    "dead retry --all",
    "cancel t",
    "result t",  # it has ended by then
    "watch t",
)
NEED_A_LEDGER = (*NEED_NO_BROKER, "interrupt t", "worker", "up", "exporter", "transcript t", "dead show x")


class Fault(NamedTuple):
    """What fails, as a command is to know it."""

    environment: dict[str, str]
    words: str  # that name it


def _answers(fleet: Fleet, commands: tuple[str, ...], fault: Fault) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run the commands, each of which has to end in time."""
    environment = fleet.environment | fault.environment

    def run(command: str) -> tuple[subprocess.CompletedProcess[str], float]:
        began = time.monotonic()
        return fleet.command(*command.split(), env=environment), time.monotonic() - began

    with _slowness(fleet) as slow, ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(commands, pool.map(run, commands), strict=True))
    for command, (said, took_s) in answers.items():
        assert took_s < ANSWER_S + slow.longest_s * BUSY, f"{command}: {said.stderr}"
    return {command: said for command, (said, _) in answers.items()}


def _slowness(fleet: Fleet) -> AbstractContextManager[Slowness]:
    return slowness(lambda: fleet.command("watch", "no-such-turn"))


@contextmanager
def _silent(scheme: str, path: str) -> Iterator[str]:
    """The URL of a server whose kernel accepts connections, and which never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"{scheme}://127.0.0.1:{server.getsockname()[1]}/{path}"


@contextmanager
def _frozen_broker(fleet: Fleet) -> Iterator[None]:
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=["embedded frozen", "redis silent", "redis dead", "rabbitmq silent", "rabbitmq dead"])
def broken_broker(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Fault]:
    fleet.ledger.queue.submit_many([fleet.request(turn_id="t")], time.time())
    kind, _, how = request.param.partition(" ")
    scheme, path = {"rabbitmq": ("amqp", "/")}.get(kind, ("redis", "0"))
    if kind == "embedded":
        with _frozen_broker(fleet):
            yield Fault({}, "the embedded broker (process ")
    elif how == "dead":
        url = f"{scheme}://127.0.0.1:1/{path}"
        yield Fault({"RUNTURN_BROKER_URL": url}, f"no broker answers at {scheme}://")
    else:
        with _silent(scheme, path) as url:
            yield Fault({"RUNTURN_BROKER_URL": url}, f"no broker answers at {scheme}://")


def test_every_command_answers_without_a_broker(fleet: Fleet, broken_broker: Fault) -> None:
    for command, said in _answers(fleet, NEED_A_BROKER, broken_broker).items():
        assert (said.returncode, said.stdout) == (3, ""), command
        assert broken_broker.words in said.stderr, command
        assert "Traceback" not in said.stderr, command
    # Without one, these work on; `cancel` comes before those that would wait for the turn.
    for commands in (("cancel t",), NEED_NO_BROKER):
        for command, said in _answers(fleet, commands, broken_broker).items():
            assert said.returncode in ((0, 1) if command in ("result t", "watch t") else (0,)), said.stderr
    doctor = _answers(fleet, ("doctor", "doctor --host local"), broken_broker)
    for command, said in doctor.items():
        assert broken_broker.words in said.stdout, command


def test_watch_names_the_broker_and_shows_what_the_ledger_has(fleet: Fleet, broken_broker: Fault) -> None:
    log, began = fleet.root / "watch.log", time.monotonic()
    with log.open("wb") as output:
        command = [*RUNTURN, "watch", "t"]
        environment = fleet.environment | broken_broker.environment
        watching = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    with watching:
        try:
            with _slowness(fleet) as slow:
                until(lambda: broken_broker.words in text_of(log), "the broker to be named")
                took_s = time.monotonic() - began
            assert took_s < ANSWER_S + slow.longest_s * BUSY
            until(lambda: "waiting for a free slot" in text_of(log), "the turn's state")
        finally:
            watching.terminate()
    assert watching.returncode == -signal.SIGTERM


@pytest.fixture(params=["postgresql silent", "postgresql dead", "sqlite locked by another opening"])
def broken_ledger(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Fault]:
    kind, _, how = request.param.partition(" ")
    if kind == "sqlite":
        with (fleet.state.root / "ledger.sqlite3.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Fault({}, "another process has been opening it")
    elif how == "dead":
        yield Fault(
            {"RUNTURN_LEDGER_URL": "postgresql://me@127.0.0.1:1/x"}, "ledger postgresql://me@127.0.0.1:1/x: "
        )
    else:
        with _silent("postgresql", "x") as url:
            yield Fault({"RUNTURN_LEDGER_URL": url}, f"ledger {url}: ")


def test_every_command_answers_without_a_ledger(fleet: Fleet, broken_ledger: Fault) -> None:
    for command, said in _answers(fleet, NEED_A_LEDGER, broken_ledger).items():
        if command == "transcript t":  # it looks for an archive first
            continue
        assert (said.returncode, said.stdout) == (3, ""), (command, said.stderr)
        assert broken_ledger.words in said.stderr, command
        assert "Traceback" not in said.stderr, command
    (doctor,) = _answers(fleet, ("doctor",), broken_ledger).values()
    assert broken_ledger.words in doctor.stdout


def test_ledger_locked_by_a_frozen_writer_stops_writers_only(fleet: Fleet) -> None:
    fault = Fault({}, "another process has held the lock for more than 4 s")
    fleet.ledger.queue.submit_many([fleet.request(turn_id="t")], time.time())
    with closing(sqlite3.connect(fleet.state.root / "ledger.sqlite3", isolation_level=None)) as frozen:
        frozen.execute("BEGIN IMMEDIATE")
        for command, said in _answers(
            fleet, ("enqueue x", "cancel t", "budget set a=b 1 --per day"), fault
        ).items():
            assert said.returncode == 3, command
            assert fault.words in said.stderr, command
        assert all(said.returncode == 0 for said in _answers(fleet, ("history", "top --once"), fault).values())


@pytest.mark.postgresql
def test_server_that_freezes_amid_a_command_is_unavailable(fleet: Fleet, postgresql: PostgresqlServer) -> None:
    url = postgresql.new_database()
    environment = fleet.environment | {"RUNTURN_LEDGER_URL": url}
    fleet.command("history", env=environment)
    with psycopg.connect(url) as locking:
        locking.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")  # as good as frozen: it answers nothing
        said = _answers(fleet, ("history",), Fault({"RUNTURN_LEDGER_URL": url}, ""))["history"]
    assert said.returncode == 3
    assert "start it, or correct RUNTURN_LEDGER_URL" in said.stderr

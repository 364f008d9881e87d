"""The RabbitMQ that other tests build on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import amqp
import psutil
import pytest

from tests.support.brokers.rabbitmq import RabbitMQ
from tests.support.needs import need
from tests.support.waiting import until


def test_data_outlive_the_server_and_no_process_does() -> None:
    before = _erlang()
    with RabbitMQ() as server:
        vhost = server.new_vhost()
        _publish(vhost.name, server.port)
        server.sync()
        server.kill()
        server.start()
        until(lambda: vhost.list_queues("messages", "type") == {"kept": ("1", "quorum")}, "the message")
        assert not vhost.list_exchanges()
        with amqp.Connection(host=f"127.0.0.1:{server.port}", virtual_host=vhost.name) as connection:
            vhost.close_connections()
            with pytest.raises(amqp.ConnectionForced):
                connection.drain_events(timeout=90)
    assert _erlang() <= before
    assert not server.folder.exists()


def _publish(vhost: str, port: int) -> None:
    with amqp.Connection(host=f"127.0.0.1:{port}", virtual_host=vhost, confirm_publish=True) as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"})
        channel.basic_publish(amqp.Message("a", delivery_mode=2), routing_key="kept")


def _erlang() -> set[int]:
    """The processes of Erlang that this one started."""
    ours = {process.pid for process in psutil.Process(os.getpid()).children(recursive=True)}
    return {
        process.pid
        for process in psutil.process_iter(["name", "status"])
        if process.pid in ours and process.info["name"] in {"epmd", "beam.smp"}
    }


def test_server_ends_with_tests_that_are_killed() -> None:
    need("rabbitmq-server")
    program = """
from tests.support.brokers.rabbitmq import RabbitMQ
server = RabbitMQ()
server.start()
print(server.folder, server._node.pid, server._names.pid, flush=True)
input()
"""
    tests = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None
    folder, *pids = tests.stdout.readline().split()
    tests.kill()
    tests.communicate()
    for pid in map(int, pids):
        until(lambda pid=pid: not _lives(pid), "the server's end")  # type: ignore[misc]
    shutil.rmtree(folder)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

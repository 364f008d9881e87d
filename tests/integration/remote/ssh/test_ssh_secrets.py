"""What goes to a host over SSH shows in no log: not in asyncssh's at its most talkative, not in sshd's."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from adapters.command import Command
from remote.follower import Follower
from remote.run import run_script
from remote.shell import BOOT
from remote.spool import Spool
from remote.ssh.connector import Connector
from remote.ssh.host import SshHost
from remote.ssh.host_keys import HostKeys
from remote.ssh.target import Target
from tests.support.leaks import places
from tests.support.needs import need
from tests.support.ssh.laboratory import drain
from tests.support.ssh.sshd import Sshd

SECRETS = {name: secrets.token_hex(12) for name in ("environment", "prompt", "argument")}


class Listener(logging.Handler):
    """Takes down all that asyncssh logs: the lines, and the packets that some of them come with."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.heard = bytearray()

    def emit(self, record: logging.LogRecord) -> None:
        self.heard += record.getMessage().encode() + b"\n" + getattr(record, "packet", b"")


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener, log = Listener(), logging.getLogger("asyncssh")
    log.addHandler(listener)
    log.setLevel(logging.DEBUG)
    yield listener
    asyncssh.set_debug_level(1)
    log.setLevel(logging.NOTSET)
    log.removeHandler(listener)


async def talk(sshd: Sshd) -> None:
    """Have a turn and a short command, and everything secret in them."""
    target = Target("box", sshd.host, port=sshd.port, identity=sshd.client_key)
    connector = Connector([target], HostKeys(sshd.folder / "kept"), config_file=Path(os.devnull))
    host = SshHost(target, connector)
    agent = Command(("wc", "-c"), "/", SECRETS["prompt"].encode(), {"TOKEN": SECRETS["environment"]})
    async with Follower(host, Spool("~/spools", "t1", "seal"), agent) as turn:
        assert await drain(turn) == b"24\n"
    output = await run_script(host, 'printf %s "$1" | wc -c', (SECRETS["argument"],))
    assert output.stdout == b"24\n"
    await host.close()


async def test_secrets_show_in_no_log(listener: Listener) -> None:
    need("sshd")
    asyncssh.set_debug_level(2)
    with Sshd(log_level="DEBUG3") as sshd:
        await talk(sshd)
        logs = {"asyncssh": bytes(listener.heard), "sshd": sshd.log().encode()}
        # sshd has it, too, from OpenSSH 10 on or if it is not root; it has no secret
        assert "asyncssh" in places(BOOT, logs)
        assert places(" req exec", logs) == {"sshd"}
        assert not places(" req env", logs)
        for name, secret in SECRETS.items():
            assert not places(secret, logs), name
        key = sshd.client_key.read_text().splitlines()[2]
        assert not places(key, logs)


async def test_they_would_be_seen_if_they_showed(listener: Listener) -> None:
    need("sshd")
    asyncssh.set_debug_level(3)  # which keeps every packet; nothing of ours asks for it
    with Sshd() as sshd:
        await talk(sshd)
        for name, secret in SECRETS.items():
            assert places(secret, {"asyncssh": bytes(listener.heard)}), name

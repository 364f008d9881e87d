"""One connection that many wait for, and its end at any moment."""

from __future__ import annotations

import asyncio

import pytest
from asyncssh import SSHClientConnection

from remote.errors import HostUnreachable
from remote.ssh.connection import Connection
from tests.support.ssh.laboratory import eventually
from tests.support.ssh.ssh_laboratory import SshLab, loop_complaints, nap
from tests.support.ssh.sshd import Sshd

quiet = pytest.fixture(autouse=True)(loop_complaints)


def connect(site: SshLab, sshd: Sshd) -> Connection:
    return Connection("box", site.connector().connect(site.target(sshd)))


async def never() -> SSHClientConnection:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def test_it_is_made_stands_and_ends(site: SshLab, sshd: Sshd) -> None:
    connection = connect(site, sshd)
    assert not connection.stands
    assert not connection.over
    made = await connection.made()
    assert connection.stands
    assert await connection.made() is made
    sshd.kill_sessions()
    await connection.ended()
    assert connection.over
    assert not connection.stands


async def test_one_who_waits_and_gives_up_does_not_break_it_off(site: SshLab, sshd: Sshd) -> None:
    connection = connect(site, sshd)
    waiting = [asyncio.create_task(connection.made()) for _ in range(2)]
    await nap()
    waiting[0].cancel()
    assert not (await waiting[1]).is_closed()
    connection.close()
    await connection.ended()
    await eventually(lambda: sshd.connections() == 0)


async def test_who_waits_hears_why_it_failed_and_nobody_has_to_wait() -> None:
    async def failing() -> SSHClientConnection:
        raise HostUnreachable("box", "nothing listens")

    connection = Connection("box", failing())
    await connection.ended()
    assert connection.over
    with pytest.raises(HostUnreachable, match="nothing listens"):
        await connection.made()
    Connection("box", failing())
    await nap()


async def test_one_that_is_closed_is_over_at_once_and_who_waits_for_it_hears_so() -> None:
    connection = Connection("box", never())
    waiting = asyncio.create_task(connection.made())
    await nap()
    connection.close()
    assert connection.over
    with pytest.raises(HostUnreachable, match="closed by us"):
        await waiting
    await connection.ended()
    connection.close()


async def test_one_that_is_made_although_it_was_closed_is_closed_then(site: SshLab, sshd: Sshd) -> None:
    async def stubborn() -> SSHClientConnection:
        try:
            return await never()
        except asyncio.CancelledError:
            return await site.connector().connect(site.target(sshd))

    connection = Connection("box", stubborn())
    await nap()
    connection.close()
    await connection.ended()
    with pytest.raises(HostUnreachable, match="closed by us"):
        await connection.made()
    assert "Accepted publickey" in sshd.log()
    await eventually(lambda: sshd.connections() == 0)

"""Many shells over few connections: how many, how they come and go, and what becomes of those that die."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from random import Random

import pytest

from remote.errors import HostAuthFailed, HostKeyChanged, HostUnreachable
from remote.shell import frame
from remote.ssh import login
from remote.ssh import multiplexed as link_module
from remote.ssh.channel import SshChannel
from remote.ssh.host import SshHost
from tests.support.ssh import keys
from tests.support.ssh.laboratory import eventually
from tests.support.ssh.links import Link, need_links
from tests.support.ssh.ssh_laboratory import SshLab, connected, line, loop_complaints, nap, opened, rest, run
from tests.support.ssh.sshd import Sshd

quiet = pytest.fixture(autouse=True)(loop_complaints)


async def open_shells(pool: SshHost, number: int) -> list[SshChannel]:
    """Open so many shells at once, and see that each is one."""
    channels = await asyncio.gather(*(pool.open_channel() for _ in range(number)))
    for channel in channels:
        await channel.write(frame(b"echo ready; cat"))
    for channel in channels:
        assert await line(channel) == "ready"
    return channels


async def close(channels: list[SshChannel]) -> None:
    await asyncio.gather(*(channel.close() for channel in channels))


class Sleeps:
    """A sleep that only remembers how long."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


# ---- how many


async def test_a_hundred_shells_at_once_come_over_as_few_connections_as_they_need(
    site: SshLab, sshd: Sshd
) -> None:
    target = site.target(sshd)
    connector = site.connector(target)
    async with opened(SshHost(target, connector)) as pool:
        channels = await open_shells(pool, 100)
        assert pool.channels == 100
        await connected(sshd, pool, 13)
        assert connector.tries == 13
        assert connector.most_at_once <= 8
        await close(channels)
        assert pool.channels == 0
        assert pool.connections == 13
    await eventually(lambda: sshd.connections() == 0)
    await eventually(lambda: sshd.sessions() == [], sshd.sessions)
    assert sshd.log().count("Starting session") == 100


async def test_shells_one_after_another_share_a_connection(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        for _ in range(20):
            channel = await pool.open_channel()
            assert await run(channel, "echo hello") == b"hello\n"
            await channel.close()
    assert sshd.log().count("Connection from") == 1


async def test_the_place_of_a_closed_channel_is_taken_again(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channels = await open_shells(pool, 16)
        await close(channels[3:9])
        await open_shells(pool, 6)
        assert pool.connections == 2


@pytest.mark.parametrize(("limit", "shells", "connections"), [(3, 10, 4), (1, 6, 6)])
async def test_a_host_that_allows_fewer_sessions_gets_more_connections(
    site: SshLab, limit: int, shells: int, connections: int
) -> None:
    with Sshd(f"MaxSessions {limit}") as sshd:
        async with site.pool(site.target(sshd)) as pool:
            channels = await open_shells(pool, shells)
            await connected(sshd, pool, connections)
            await close(channels)
            await close(await open_shells(pool, shells))
            await connected(sshd, pool, connections)
            assert pool.channels == 0


async def test_a_host_that_allows_no_sessions_says_so_and_is_not_stormed(site: SshLab) -> None:
    with Sshd("MaxSessions 0") as sshd:
        async with site.pool(site.target(sshd)) as pool:
            opening = [pool.open_channel() for _ in range(20)]
            outcomes = await asyncio.gather(*opening, return_exceptions=True)
            for outcome in outcomes:
                assert isinstance(outcome, HostUnreachable)
                assert "it refuses to open a channel: open failed; see MaxSessions" in outcome.message
            assert pool.channels == 0
            assert sshd.log().count("Connection from") <= 3


async def test_a_host_that_lets_few_in_at_a_time_lets_all_in_and_is_not_stormed(site: SshLab) -> None:
    with Sshd("MaxStartups 2") as sshd:
        async with site.pool(site.target(sshd)) as pool:
            channels = await open_shells(pool, 100)
            await connected(sshd, pool, 13)
            await close(channels)
        # One of the first eight is let in, all the rest later.
        assert 0 < sshd.log().count("drop connection") <= 11


# ---- the first connection, and failures


async def test_while_no_connection_stands_only_one_is_made(site: SshLab, sshd: Sshd) -> None:
    target = site.target(sshd)
    connector = site.connector(target)
    async with opened(SshHost(target, connector)) as pool:
        sshd.freeze()
        opening = [asyncio.create_task(pool.open_channel()) for _ in range(20)]
        await eventually(lambda: connector.at_once == 1)
        await nap()
        assert connector.tries == pool.connections == 1
        sshd.thaw()
        await close(await asyncio.gather(*opening))
        assert connector.tries == pool.connections == 3


async def test_a_refused_login_is_tried_once_however_many_want_in(
    site: SshLab, sshd: Sshd, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    stranger = keys.new_key(site.folder / "stranger")
    target = site.target(sshd, identity=stranger)
    async with opened(SshHost(target, site.connector(target), clock=lambda: now)) as pool:
        outcomes = await asyncio.gather(*(pool.open_channel() for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {HostAuthFailed}
        assert "host box is avoided for 60 s" in caplog.text
        with pytest.raises(
            HostAuthFailed,
            match=r"avoided for another 60 s after 1 failed connection attempt; the last: .*refuses",
        ):
            await pool.open_channel()
        assert sshd.log().count("Connection from") == 1
        assert pool.rest_s == 60
        assert pool.failing
        now = 60.0
        assert pool.rest_s == 0
        sshd.authorized_keys.write_text(keys.public(stranger))
        await pool.open_channel()


async def test_a_changed_host_key_is_not_asked_for_again_at_once(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        await pool.open_channel()
    sshd.restart(new_host_key=True)
    async with site.pool(site.target(sshd)) as pool:
        outcomes = await asyncio.gather(*(pool.open_channel() for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {HostKeyChanged}
        with pytest.raises(HostKeyChanged, match=r"avoided .* its host key has changed"):
            await pool.open_channel()
    assert sshd.log().count("Connection from") == 2


async def test_a_host_that_is_away_is_left_alone_after_a_while_and_found_when_it_is_back(
    site: SshLab, sshd: Sshd
) -> None:
    now = 0.0
    target = site.target(sshd)
    connector = site.connector(target)
    sshd.stop()
    async with opened(SshHost(target, connector, clock=lambda: now)) as pool:
        for _ in range(3):
            assert pool.rest_s == 0
            with pytest.raises(HostUnreachable, match="cannot be reached: Connection refused"):
                await pool.open_channel()
            now += 1
        rest_s = pool.rest_s
        assert 0 < rest_s <= 5
        with pytest.raises(HostUnreachable, match=r"avoided .* after 3 failed connection attempts"):
            await pool.open_channel()
        assert pool.rest_s == rest_s
        assert connector.tries == 3
        now += pool.rest_s
        sshd.start()
        await pool.open_channel()
        assert (pool.rest_s, pool.failing) == (0, False)


async def test_a_handshake_that_is_dropped_is_tried_again_with_growing_jitter(site: SshLab, sshd: Sshd) -> None:
    knocks = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    target = site.target(sshd, port=server.sockets[0].getsockname()[1])
    slept, expected = Sleeps(), Random(1)
    async with server, site.pool(target, rng=Random(1), sleep=slept) as pool:
        with pytest.raises(HostUnreachable, match="hung up during the handshake"):
            await pool.open_channel()
    assert knocks == 4
    assert slept.seconds == [expected.uniform(0, ceiling) for ceiling in (1, 2, 4)]


async def test_a_host_that_accepts_and_says_nothing_is_unreachable(site: SshLab, sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = site.target(sshd, port=silent.getsockname()[1])
        async with site.pool(target, timeout_s=0.3) as pool:
            with pytest.raises(HostUnreachable, match="did not answer within the connect timeout"):
                await pool.open_channel()


async def test_a_host_that_is_frozen_is_unreachable(site: SshLab, sshd: Sshd) -> None:
    sshd.freeze()
    async with site.pool(site.target(sshd), timeout_s=0.3) as pool:
        with pytest.raises(HostUnreachable, match="did not answer within the connect timeout"):
            await pool.open_channel()
        await eventually(lambda: (pool.connections, pool.channels) == (0, 0))


# ---- idle connections


async def test_an_idle_connection_is_closed_and_one_in_use_is_not(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd), idle_s=0.2) as pool:
        channels = await open_shells(pool, 9)
        kept = channels.pop()
        await close(channels)
        await eventually(lambda: pool.connections == 1)
        await eventually(lambda: sshd.connections() == 1)
        await kept.write(b"still here\n")
        assert await line(kept) == "still here"
        await kept.close()
        await eventually(lambda: sshd.connections() == 0)
        assert pool.connections == 0
        assert await run(await pool.open_channel(), "echo again") == b"again\n"


async def test_a_connection_in_use_again_is_not_idle(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd), idle_s=0.5) as pool:
        await (await pool.open_channel()).close()
        channel = await pool.open_channel()
        assert await run(channel, "sleep 1; echo here") == b"here\n"


# ---- connections that die


async def test_a_connection_that_dies_ends_its_channels_and_is_replaced(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channels = await open_shells(pool, 10)
        reading = [asyncio.create_task(rest(channel)) for channel in channels]
        await nap()
        sshd.kill_sessions()
        assert await asyncio.gather(*reading) == [b""] * 10
        await eventually(lambda: (pool.connections, pool.channels) == (0, 0))
        for channel in channels:
            with pytest.raises(HostUnreachable):
                await channel.write(b"\n")
            await channel.close()
        await close(await open_shells(pool, 10))
        await connected(sshd, pool, 2)


async def test_who_opens_a_channel_as_the_connection_dies_hears_of_it(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        await open_shells(pool, 1)
        sshd.freeze()
        opening = [asyncio.create_task(pool.open_channel()) for _ in range(5)]
        await nap()
        sshd.kill_sessions()
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {HostUnreachable}
        assert "the connection ended" in str(outcomes[0])
        sshd.thaw()
        await open_shells(pool, 5)
        assert pool.channels == 5


async def test_a_dead_connection_is_given_up_before_it_is_known_to_be_dead(
    site: SshLab, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.pool(site.target(sshd)) as pool:
        (other,) = await open_shells(pool, 1)
        monkeypatch.setattr(link_module, "_OPEN_S", 0.3)
        frozen = sshd.sessions()
        sshd.freeze()
        with pytest.raises(HostUnreachable, match=r"it opened no channel within 0.3 s"):
            await pool.open_channel()
        monkeypatch.undo()
        opening = asyncio.create_task(pool.open_channel())
        await eventually(lambda: pool.connections == 2)
        sshd.thaw()
        assert await run(await opening, "echo elsewhere") == b"elsewhere\n"
        await other.write(b"goes on\n")
        assert await line(other) == "goes on"
        await other.close()
        await eventually(lambda: not set(frozen) & set(sshd.sessions()))
        assert pool.connections == 1


async def test_a_cut_link_ends_the_channels_and_a_mended_one_is_used_again(
    site: SshLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_links()
    monkeypatch.setattr(login, "_UNATTENDED", {**login._UNATTENDED, "keepalive_interval": 0.5})
    with Link() as link, Sshd(link=link) as sshd:
        async with site.pool(site.target(sshd), timeout_s=10.0) as pool:
            channels = await open_shells(pool, 3)
            link.cut()
            assert await asyncio.gather(*map(rest, channels)) == [b""] * 3
            with pytest.raises(HostUnreachable, match="did not answer within the connect timeout"):
                await pool.open_channel()
            link.mend()
            await eventually(lambda: pool.connections == 0)
    with Link() as link, Sshd(link=link) as sshd:
        async with site.pool(site.target(sshd)) as pool:
            link.cut()
            opening = asyncio.create_task(pool.open_channel())
            await nap()
            link.mend()
            assert await run(await opening, "echo there") == b"there\n"


# ---- those who change their mind


async def test_opening_may_be_cancelled_before_the_connection_stands(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd), idle_s=0.2) as pool:
        sshd.freeze()
        opening = [asyncio.create_task(pool.open_channel()) for _ in range(12)]
        await eventually(lambda: sshd.connections() == 1)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        assert all(task.cancelled() for task in opening)
        assert pool.channels == 0
        sshd.thaw()
        await eventually(lambda: pool.connections == sshd.connections() == 0)
        await eventually(lambda: sshd.sessions() == [])


async def test_who_waits_for_the_first_connection_gets_it_though_others_leave(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd), idle_s=0.01) as pool:
        sshd.freeze()
        opening = [asyncio.create_task(pool.open_channel()) for _ in range(12)]
        await eventually(lambda: sshd.connections() == 1)
        for task in opening[:8]:  # all that have a place on it
            task.cancel()
        await asyncio.gather(*opening[:8], return_exceptions=True)
        await asyncio.sleep(0.1)  # longer than an idle connection lives
        sshd.thaw()
        await close(await asyncio.gather(*opening[8:]))
        assert sshd.log().count("Connection from") == 1


async def test_opening_may_be_cancelled_while_the_channel_opens(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        (other,) = await open_shells(pool, 1)
        sshd.freeze()
        opening = [asyncio.create_task(pool.open_channel()) for _ in range(7)]
        await nap()
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        assert all(task.cancelled() for task in opening)
        assert pool.channels == 8
        sshd.thaw()
        await eventually(lambda: pool.channels == 1)
        assert sshd.log().count("Starting session") == 8
        await close([other, *await open_shells(pool, 7)])
        await connected(sshd, pool, 1)


async def test_openings_cancelled_at_any_moment_leak_nothing(site: SshLab, sshd: Sshd) -> None:
    rng = Random(1)
    async with site.pool(site.target(sshd), idle_s=0.2) as pool:
        for _ in range(60):
            opening = [asyncio.create_task(pool.open_channel()) for _ in range(3)]
            for _ in range(rng.randrange(40)):
                await asyncio.sleep(rng.choice((0, 0, 0.001)))
            for task in opening:
                task.cancel()
            outcomes = await asyncio.gather(*opening, return_exceptions=True)
            await close([outcome for outcome in outcomes if isinstance(outcome, SshChannel)])
        await eventually(lambda: pool.channels == 0)
        await eventually(lambda: pool.connections == sshd.connections() == 0)
        await eventually(lambda: sshd.sessions() == [])


# ---- the end of the pool


async def test_closing_ends_all_channels_and_those_who_wait_for_one(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channels = await open_shells(pool, 8)
        reading = [asyncio.create_task(rest(channel)) for channel in channels]
        sshd.freeze()
        opening = [asyncio.create_task(pool.open_channel()) for _ in range(3)]
        await nap()
        assert pool.connections == 2
        await pool.close()
        assert (pool.connections, pool.channels) == (0, 0)
        assert await asyncio.gather(*reading) == [b""] * 8
        for outcome in await asyncio.gather(*opening, return_exceptions=True):
            assert isinstance(outcome, HostUnreachable)
            assert "closed by us" in outcome.message
        sshd.thaw()
    await eventually(lambda: sshd.connections() == 0)


async def test_a_closed_pool_opens_nothing_and_may_be_closed_again(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        (channel,) = await open_shells(pool, 1)
        await pool.close()
        with pytest.raises(HostUnreachable, match="closed by us"):
            await pool.open_channel()
        await channel.close()
        await pool.close()
        assert (pool.connections, pool.channels) == (0, 0)


async def test_a_host_has_the_name_and_path_of_its_target(site: SshLab, sshd: Sshd) -> None:
    target = replace(site.target(sshd), path="/opt/bin:/opt/more")
    host = SshHost(target, site.connector(target))
    assert (host.name, host.path, host.rest_s) == ("box", "/opt/bin:/opt/more", 0)
    channel = await host.open_channel()
    await channel.write(frame(b"echo hello"))
    assert await channel.read() == b"hello\n"
    await host.close()
    assert await channel.read() == b""
    with pytest.raises(HostUnreachable):
        await host.open_channel()

"""What a channel over SSH promises, with a real sshd at the other end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import tracemalloc
from collections.abc import Iterator
from random import Random

import asyncssh
import pytest

from remote.errors import HostUnreachable
from remote.host import READ_BYTES
from remote.shell import frame
from tests.support.needs import need
from tests.support.ssh.accounts import SHELLS, account
from tests.support.ssh.laboratory import eventually
from tests.support.ssh.ssh_laboratory import SshLab, connected, line, loop_complaints, nap, rest, run
from tests.support.ssh.sshd import Sshd

MB = 2**20
quiet = pytest.fixture(autouse=True)(loop_complaints)


@pytest.fixture(scope="module", autouse=True)
def sshd() -> Iterator[Sshd]:
    need("sshd")
    with Sshd() as server:
        yield server


async def test_a_shell_runs_what_it_is_sent_and_its_end_is_the_end(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        assert await run(channel, "echo hello; cd /; pwd") == b"hello\n/\n"
        assert await channel.read() == b""
        await channel.close()


async def test_bytes_pass_unchanged_in_both_directions(site: SshLab, sshd: Sshd) -> None:
    every = bytes(range(256)) * 1000
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(f"exec head -c {len(every)}".encode()))
        await channel.write(every)
        assert await rest(channel) == every


async def test_a_read_that_is_cancelled_loses_nothing(site: SshLab, sshd: Sshd) -> None:
    rng = Random(1)
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(b"i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done"))
        output, ended = b"", False
        while not ended:
            reading = asyncio.create_task(channel.read())
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                chunk = await reading
                output, ended = output + chunk, not chunk
    assert output.split() == [b"%d" % number for number in range(2000)]


@pytest.mark.parametrize("said", ["", "now"])
async def test_a_read_beside_close_brings_the_next_bytes_or_none(site: SshLab, sshd: Sshd, said: str) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(f"echo first; read gate; echo {said}; cat".encode()))
        assert await line(channel) == "first"
        reading = asyncio.create_task(channel.read())
        await nap()
        if said:
            await channel.write(b"\n")
        await channel.close()
        assert await reading in (b"", f"{said}\n".encode())
        assert await channel.read() == b""


async def test_a_reader_gets_much_in_one_go_but_not_too_much(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(f"head -c {3 * MB} /dev/zero".encode()))
        sizes = []
        while chunk := await channel.read():
            sizes.append(len(chunk))
        assert sum(sizes) == 3 * MB
        assert max(sizes) <= READ_BYTES


async def test_complaints_of_the_shell_are_not_output_and_block_nothing(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        assert await run(channel, f"head -c {8 * MB} /dev/zero >&2; echo done") == b"done\n"


async def test_two_hundred_megabytes_come_intact_to_a_reader_that_dawdles(site: SshLab, sshd: Sshd) -> None:
    size, pattern = 200 * MB, b"0123456789abcdef\n"
    async with site.pool(site.target(sshd)) as pool:
        channel, other = await pool.open_channel(), await pool.open_channel()
        tracemalloc.start()
        try:
            await channel.write(frame(f"yes {pattern.decode().strip()} | head -c {size}".encode()))
            await run(other, "sleep 1")  # meanwhile nobody reads; the host sends until it may no more
            digest, received = hashlib.sha256(), 0
            while chunk := await channel.read():
                digest.update(chunk)
                received += len(chunk)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert received == size
    assert digest.digest() == _digest(pattern, size)
    assert peak < 12 * MB


def _digest(pattern: bytes, size: int) -> bytes:
    digest, block = hashlib.sha256(), pattern * 65_536
    for _ in range(size // len(block)):
        digest.update(block)
    digest.update(block[: size % len(block)])
    return digest.digest()


async def test_ten_megabytes_wait_for_a_reader_that_dawdles(site: SshLab, sshd: Sshd) -> None:
    data = os.urandom(10 * MB)
    gate = site.folder / "gate"
    async with site.pool(site.target(sshd)) as pool:
        channel, other = await pool.open_channel(), await pool.open_channel()
        script = f"until [ -e {gate} ]; do sleep 0.05; done; head -c {len(data)} | wc -c"
        await channel.write(frame(script.encode()))
        tracemalloc.start()
        try:
            writing = asyncio.create_task(channel.write(data))
            await run(other, "sleep 1")  # meanwhile we send until we may no more
            assert not writing.done()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        gate.touch()
        assert int(await line(channel)) == len(data)
        await writing
    assert peak < 5 * MB


async def test_a_write_can_be_cancelled_and_the_connection_goes_on(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        stalled, other = await pool.open_channel(), await pool.open_channel()
        await stalled.write(frame(b"echo $$; exec sleep 300"))
        sleeper = int(await line(stalled))
        writing = asyncio.create_task(stalled.write(bytes(10 * MB)))
        try:
            assert await run(other, "echo beside") == b"beside\n"
            assert not writing.done()
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
        finally:
            os.kill(sleeper, signal.SIGKILL)
        assert await rest(stalled) == b""
        assert pool.connections == 1


async def test_a_blocked_writer_hears_that_the_channel_has_ended(site: SshLab) -> None:
    with Sshd() as sshd:
        async with site.pool(site.target(sshd)) as pool:
            channel = await pool.open_channel()
            await channel.write(frame(b"echo $$; exec sleep 300"))
            sleeper = int(await line(channel))
            writing = asyncio.create_task(channel.write(bytes(10 * MB)))
            await nap()
            sshd.kill_sessions()
            with pytest.raises(HostUnreachable, match="host box: the channel has ended"):
                await writing
            os.kill(sleeper, signal.SIGKILL)


async def test_a_blocked_writer_hears_that_the_channel_was_closed(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(b"echo $$; exec sleep 300"))
        sleeper = int(await line(channel))
        writing = asyncio.create_task(channel.write(bytes(10 * MB)))
        await nap()
        closing = asyncio.create_task(channel.close())
        with pytest.raises(HostUnreachable, match="has ended"):
            await writing
        os.kill(sleeper, signal.SIGKILL)
        await closing


async def test_nothing_can_be_written_after_the_end(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        ended, closed = await pool.open_channel(), await pool.open_channel()
        assert await run(ended, "exit") == b""
        await closed.close()
        for channel in (ended, closed):
            with pytest.raises(HostUnreachable, match="host box: the channel has ended"):
                await channel.write(b"\n")


async def test_close_may_be_repeated_and_cancelled_and_the_shell_still_ends(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channels = [await pool.open_channel() for _ in range(4)]
        for channel in channels:
            await channel.write(frame(b"echo ready; cat"))
            assert await line(channel) == "ready"
        once, twice, cancelled, ended = channels
        await once.close()
        await asyncio.gather(twice.close(), twice.close())
        await twice.close()
        closing = asyncio.create_task(cancelled.close())
        await asyncio.sleep(0)
        closing.cancel()
        await ended.close()
        await ended.close()
        await eventually(lambda: pool.channels == 0)
        assert pool.connections == 1


async def test_what_was_written_arrives_before_the_end_of_the_input(site: SshLab, sshd: Sshd) -> None:
    copy = site.folder / "copy"
    data = os.urandom(MB)
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(f"cat >{copy}".encode()))
        await channel.write(data)
        await channel.close()
        assert copy.read_bytes() == data


async def test_a_child_that_keeps_the_output_open_does_not_keep_the_channel(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(b"sleep 300 & echo $!"))
        sleeper = int(await line(channel))
        await channel.close()
        os.kill(sleeper, signal.SIGKILL)
        assert await run(await pool.open_channel(), "echo here") == b"here\n"
        assert pool.connections == 1


async def test_a_shell_that_prints_without_end_is_ended(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        channel = await pool.open_channel()
        await channel.write(frame(b"yes"))
        assert await channel.read()
        await channel.close()
        assert (pool.connections, pool.channels) == (1, 0)


async def test_keys_are_agreed_on_anew_while_channels_go_on(site: SshLab) -> None:
    site.config.write_text("RekeyLimit 1M\n")
    data = os.urandom(8 * MB)
    with Sshd("RekeyLimit 1M") as sshd:
        async with site.pool(site.target(sshd)) as pool:
            channels = [await pool.open_channel() for _ in range(3)]
            for channel in channels:
                await channel.write(frame(f"exec head -c {len(data)}".encode()))
            writing = [asyncio.create_task(channel.write(data)) for channel in channels]
            assert await asyncio.gather(*map(rest, channels)) == [data] * 3
            await asyncio.gather(*writing, return_exceptions=True)
            assert pool.connections == 1


async def test_a_shell_that_does_not_end_is_left_behind_with_its_connection(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        stubborn, other = await pool.open_channel(), await pool.open_channel()
        await stubborn.write(frame(b"echo $$; exec sleep 300"))
        sleeper = int(await line(stubborn))
        reading = asyncio.create_task(stubborn.read())
        try:
            await stubborn.close()
            await stubborn.close()
            assert reading.done()
            assert await reading == b""
            assert (pool.connections, pool.channels) == (1, 2)
            elsewhere = await pool.open_channel()
            await connected(sshd, pool, 2)
            assert await run(other, "echo goes on") == b"goes on\n"
            await other.close()
            await eventually(lambda: (pool.connections, pool.channels) == (1, 1))
            await eventually(lambda: sshd.connections() == 1)
            assert await run(elsewhere, "echo here") == b"here\n"
        finally:
            os.kill(sleeper, signal.SIGKILL)


async def test_a_stubborn_shell_that_ends_late_is_let_go(site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as pool:
        stubborn, other = await pool.open_channel(), await pool.open_channel()
        await stubborn.write(frame(b"echo $$; exec sleep 300"))
        sleeper = int(await line(stubborn))
        await stubborn.close()
        os.kill(sleeper, signal.SIGKILL)
        await eventually(lambda: pool.channels == 1)
        await other.close()
        await eventually(lambda: pool.connections == 0)


async def test_what_was_not_read_when_the_connection_died_does_no_harm(site: SshLab) -> None:
    with Sshd() as sshd:
        async with site.pool(site.target(sshd)) as pool:
            channel, other = await pool.open_channel(), await pool.open_channel()
            await channel.write(frame(f"head -c {2 * MB} /dev/zero; exec >&- 2>&-; read gate".encode()))
            await run(other, "sleep 1")  # meanwhile all of it comes, with the end of the output behind
            sshd.kill_sessions()
            await eventually(lambda: pool.connections == 0)
            assert set(await rest(channel)) <= {0}
            await channel.close()
            assert pool.channels == 0


@pytest.mark.parametrize("shell", SHELLS)
async def test_start_up_files_may_say_what_they_like(site: SshLab, sshd: Sshd, shell: str) -> None:
    with account(shell) as user:
        user.write_startup("echo noise; sh -c 'echo complaint >&2'\n")
        async with site.pool(site.target(sshd, user=user.name)) as pool:
            channel = await pool.open_channel()
            output = await run(channel, "printf 'ready:%s\\n' \"$(id -un)\"")
            assert output.endswith(f"ready:{user.name}\n".encode())
            assert b"complaint" not in output


async def test_asyncssh_never_logs_what_goes_over_a_channel(
    site: SshLab, sshd: Sshd, caplog: pytest.LogCaptureFixture
) -> None:
    secret = os.urandom(16).hex()
    asyncssh.set_debug_level(2)
    try:
        with caplog.at_level(logging.DEBUG, logger="asyncssh"):  # a worker in this process may have hushed it
            async with site.pool(site.target(sshd)) as pool:
                channel = await pool.open_channel()
                await channel.write(frame(f"SECRET={secret}; read -r line; echo $SECRET$line".encode()))
                await channel.write(f"{secret}\n".encode())
                assert await line(channel) == 2 * secret
                await channel.close()
    finally:
        asyncssh.set_debug_level(1)
    assert "data byte" in caplog.text
    assert secret not in caplog.text

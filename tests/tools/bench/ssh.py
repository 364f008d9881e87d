"""Hosts over SSH compared with one `ssh` process per turn: same sshd, same login, in one run.

"Start to first byte" is from requesting a start to receiving the first byte of output. "warm" uses open
connections, "cold" includes opening them. A "shell" is what `ssh` provides: a channel with a program in it; a
"turn" additionally has a supervisor, a spool and a lease.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from adapters.command import Command
from remote.follower import Follower
from remote.host import Channel
from remote.shell import frame
from remote.spool import Spool
from remote.ssh.connector import Connector
from remote.ssh.host import SshHost
from remote.ssh.host_keys import HostKeys
from remote.ssh.target import Target
from tests.support.ssh.sshd import Sshd
from tests.tools.bench.rows import Rows, at_least, at_most, informs

_AT_ONCE = (1, 10, 100)
_ROUNDS = {1: 15, 10: 5, 100: 3}
_CIPHER = "aes128-gcm@openssh.com"
_STREAM_BYTES = 256 * 2**20
_STREAMS = 3
_PRINT = "echo x; sleep 60"  # what is started: it says something and stays, as agents do

Start = Callable[[], Awaitable[float]]  # returns when its first byte was there


def ssh_start() -> Rows:
    """Measure latency, CPU and memory of starts."""
    with Sshd() as sshd, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_starts(sshd, Path(folder)))


def ssh_throughput() -> Rows:
    """Measure one channel's throughput, with the same cipher."""
    with Sshd() as sshd, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_throughput(sshd, Path(folder)))


async def _starts(sshd: Sshd, folder: Path) -> Rows:
    rows: Rows = {}
    for count in _AT_ONCE:
        measured = {"ssh": [], "shell_cold": [], "shell_warm": [], "turn_warm": []}
        for _ in range(_ROUNDS[count]):
            measured["ssh"].append(await _ssh_processes(sshd, count))
            bench = _Ours(_target(sshd), folder)
            measured["shell_cold"].append(await bench.shells(count))
            measured["shell_warm"].append(await bench.shells(count))
            measured["turn_warm"].append(await bench.turns(count))
            await bench.host.close()
        for name, samples in measured.items():
            first_ms, cpu_ms, memory = (statistics.median(column) for column in zip(*samples, strict=True))
            rows[f"{name}_first_byte_at_{count}"] = informs(first_ms, "ms")
            rows[f"{name}_cpu_at_{count}"] = informs(cpu_ms, "ms per start")
            rows[f"{name}_memory_at_{count}"] = informs(memory, "MiB per start")
    address = (sshd.host, sshd.port, str(sshd.client_key), str(folder))
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        rows["turn_fresh_memory_at_100"] = informs(fresh.apply(_memory_of_turns, (address, 100)), "MiB per start")
    return rows | _ratios(rows)


def _memory_of_turns(address: tuple[str, int, str, str], count: int) -> float:
    """Return the MiB per turn in a fresh process, including the turn's share of the connections."""
    host, port, key, folder = address
    target = Target("bench", host, port=port, identity=Path(key))
    ours = _Ours(target, Path(folder))

    async def measure() -> float:
        _, _, memory = await ours.turns(count)
        await ours.host.close()
        return memory

    return asyncio.run(measure())


def _ratios(rows: Rows) -> Rows:
    def ratio(kind: str, over: str, under: str, count: int) -> float:
        return rows[f"{over}_{kind}_at_{count}"]["value"] / rows[f"{under}_{kind}_at_{count}"]["value"]

    return {
        "turn_warm_vs_ssh_at_1": at_least(ratio("first_byte", "ssh", "turn_warm", 1), 12, "x"),
        "turn_warm_vs_ssh_at_100": at_least(ratio("first_byte", "ssh", "turn_warm", 100), 8, "x"),
        "shell_warm_vs_ssh_at_1": at_least(ratio("first_byte", "ssh", "shell_warm", 1), 12, "x"),
        "shell_warm_vs_ssh_at_100": at_least(ratio("first_byte", "ssh", "shell_warm", 100), 8, "x"),
        "turn_memory_vs_ssh_at_100": at_most(ratio("memory", "turn_fresh", "ssh", 100), 0.05, "x"),
    }


async def _ssh_processes(sshd: Sshd, count: int) -> tuple[float, float, float]:
    """Return median first byte in ms, client CPU in ms and MiB per start, with eight handshakes at a time."""
    handshakes = asyncio.Semaphore(8)  # as many as ours makes: sshd would drop others
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = sshd.ssh_argv(None, f"{_PRINT}", options=("-c", _CIPHER))
    began = time.perf_counter()

    async def start() -> tuple[float, asyncio.subprocess.Process]:
        async with handshakes:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert process.stdout is not None
            assert await process.stdout.read(1)
            return time.perf_counter() - began, process

    started = await asyncio.gather(*(start() for _ in range(count)))
    memory = sum(psutil.Process(process.pid).memory_info().rss for _, process in started) / count
    for _, process in started:
        process.terminate()
        await process.wait()
    return _sample([first for first, _ in started], before, resource.RUSAGE_CHILDREN, memory, count)


def _target(sshd: Sshd) -> Target:
    return Target("bench", sshd.host, port=sshd.port, identity=sshd.client_key)


class _Ours:
    """Our host, with a pool that has no connections yet."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.host = SshHost(target, Connector([target], HostKeys(folder / "known_hosts")))
        self._root = folder / "spools"

    async def shells(self, count: int) -> tuple[float, float, float]:
        """Measure as `_ssh_processes` does, each start in a channel."""
        channels: list[Channel] = []

        async def start() -> float:
            channel = await self.host.open_channel()
            channels.append(channel)
            await channel.write(frame(_PRINT.replace("sleep 60", "read -r end").encode()))
            assert await channel.read()
            return time.perf_counter()

        async def stop() -> None:
            await asyncio.gather(*(channel.close() for channel in channels))

        return await self._measured(start, stop, count)

    async def turns(self, count: int) -> tuple[float, float, float]:
        """Measure as `_ssh_processes` does, each start a followed turn."""
        followers = []

        async def start() -> float:
            spool = Spool(str(self._root), f"t{time.monotonic_ns()}-{len(followers)}", "seal")
            follower = Follower(self.host, spool, Command(("sh", "-c", _PRINT), "/"))
            followers.append(follower)
            await follower.__aenter__()
            await anext(follower)
            return time.perf_counter()

        async def stop() -> None:
            await asyncio.gather(*(_end(follower) for follower in followers))

        return await self._measured(start, stop, count)

    async def _measured(
        self, start: Start, stop: Callable[[], Awaitable[None]], count: int
    ) -> tuple[float, float, float]:
        memory = psutil.Process().memory_info().rss
        before = resource.getrusage(resource.RUSAGE_SELF)
        began = time.perf_counter()
        times = await asyncio.gather(*(start() for _ in range(count)))
        grown = max(0, psutil.Process().memory_info().rss - memory) / count
        sample = _sample([at - began for at in times], before, resource.RUSAGE_SELF, grown, count)
        await stop()
        return sample


async def _end(follower: object) -> None:
    await follower.cancel()  # type: ignore[attr-defined]
    async for _ in follower:  # type: ignore[attr-defined]
        pass
    await follower.detach()  # type: ignore[attr-defined]


def _sample(
    times: list[float], before: resource.struct_rusage, who: int, memory: float, count: int
) -> tuple[float, float, float]:
    after = resource.getrusage(who)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return statistics.median(times) * 1000, cpu * 1000 / count, memory / 2**20


async def _throughput(sshd: Sshd, folder: Path) -> Rows:
    script = f"head -c {_STREAM_BYTES} /dev/zero"
    host = _Ours(_target(sshd), folder).host
    theirs, ours = [], []
    for _ in range(_STREAMS):
        theirs.append(_mb_per_s(_read_process(sshd.ssh_argv(None, script, options=("-c", _CIPHER)))))
        ours.append(_mb_per_s(await _read_channel(host, script)))
    await host.close()
    mine, his = statistics.median(ours), statistics.median(theirs)
    return {
        "channel_throughput": informs(mine, "MB/s"),
        "ssh_throughput": informs(his, "MB/s"),
        "throughput_vs_ssh": at_least(mine / his, 1.0, "x"),
    }


def _read_process(argv: list[str]) -> float:
    began = time.perf_counter()
    size = 0
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while chunk := process.stdout.read(2**18):
            size += len(chunk)
    assert size == _STREAM_BYTES
    return time.perf_counter() - began


async def _read_channel(host: SshHost, script: str) -> float:
    channel = await host.open_channel()
    began = time.perf_counter()
    await channel.write(frame(script.encode()))
    size = 0
    while chunk := await channel.read():
        size += len(chunk)
    assert size == _STREAM_BYTES
    await channel.close()
    return time.perf_counter() - began


def _mb_per_s(seconds: float) -> float:
    return _STREAM_BYTES / 1e6 / seconds

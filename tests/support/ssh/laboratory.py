"""A laboratory for turns: real shells, real processes, and a host whose channels can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from adapters.command import Command, Signal
from adapters.isolation import Isolation
from remote.backoff import Patience
from remote.containment import Containment
from remote.errors import HostUnreachable
from remote.follower import Follower, Lease
from remote.host import Channel
from remote.local import LocalHost
from remote.spool import Exit, Spool
from tests.support.processes import gone_pid, look, signed
from tests.support.waiting import until, words_of

QUICK = Patience(answer_s=20.0, first_delay_s=0.05, longest_delay_s=0.2, give_up_s=15.0)
GENTLE = (Signal("INT", 10.0), Signal("TERM", 5.0), Signal("KILL", 5.0))


BARE = Containment(Isolation.NONE)


class CuttableHost:
    """A host whose channels can be cut or stranded, and whose next channels can be made to fail."""

    def __init__(self, host: LocalHost) -> None:
        self._host = host
        self.channels: list[CuttableChannel] = []
        self.refusals = 0  # so many channels cannot be opened
        self.dead_letters = 0  # so many channels take a request and end without an answer

    @property
    def name(self) -> str:
        return self._host.name

    @property
    def path(self) -> str:
        return self._host.path

    @property
    def rest_s(self) -> float:
        return self._host.rest_s

    async def close(self) -> None:
        await self._host.close()

    async def open_channel(self) -> CuttableChannel:
        if self.refusals:
            self.refusals -= 1
            raise HostUnreachable(self.name, "refused by the test")
        self.channels.append(CuttableChannel(await self._host.open_channel(), dead=self.dead_letters > 0))
        self.dead_letters -= self.dead_letters > 0
        return self.channels[-1]

    @property
    def shell(self) -> int:
        """The pid of the newest channel's shell."""
        pid: int = self.channels[-1].inner._process.pid
        return pid

    def cut(self) -> None:
        """Kill the far end of the newest channel with everything in its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell, signal.SIGKILL)


class CuttableChannel:
    """A channel that may lie to its reader."""

    def __init__(self, inner: Channel, dead: bool) -> None:
        self.inner: Any = inner
        self.stranded = False  # ended for its reader, while its host does not know
        self._dead = dead  # ends when the answer comes

    async def write(self, data: bytes) -> None:
        if not self.stranded:
            await self.inner.write(data)

    async def read(self) -> bytes:
        data: bytes = b"" if self.stranded else await self.inner.read()
        if self._dead:
            await self.inner.close()
        return b"" if self._dead or self.stranded else data

    async def close(self) -> None:
        if not self.stranded:
            await self.inner.close()


@dataclass
class Lab:
    """One host, one root of spools, one workspace."""

    folder: Path
    path: str
    spools: list[Spool] = field(default_factory=list)
    containment: Containment = BARE
    variables: dict[str, str] = field(default_factory=dict)  # of the host's environment, besides the usual ones

    def __post_init__(self) -> None:
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir(parents=True)
        self.home = self.folder / "home"
        self.home.mkdir()
        self.root = self.folder / "spools"
        usual = {"PATH": self.path, "HOME": str(self.home), "TMPDIR": tempfile.gettempdir()}
        self.host = CuttableHost(LocalHost(env=usual | self.variables))

    def spool(self) -> Spool:
        self.spools.append(Spool(str(self.root), uuid.uuid4().hex, uuid.uuid4().hex))
        return self.spools[-1]

    def command(self, *argv: str, **fields: Any) -> Command:
        fields.setdefault("cwd", str(self.workspace))
        fields.setdefault("stop", GENTLE)
        return Command(argv=argv, **fields)

    def sh(self, script: str, *args: str, **fields: Any) -> Command:
        return self.command("sh", "-c", script, "agent", *args, **fields)

    def python(self, source: str, *args: str, **fields: Any) -> Command:
        return self.command(sys.executable, "-IS", "-c", source, *args, **fields)

    def follow(self, spool: Spool, command: Command | None = None, **options: Any) -> Follower:
        options = {
            "lease": Lease(30, 0.2),
            "patience": QUICK,
            "rng": Random(1),
            "containment": self.containment,
        } | options
        return Follower(options.pop("host", self.host), spool, command, **options)

    async def run(self, command: Command | None, spool: Spool | None = None, **options: Any) -> tuple[bytes, Exit]:
        """Follow a turn to its end; return its lines, each with a newline, and the end."""
        async with self.follow(spool or self.spool(), command, **options) as turn:
            output = await drain(turn)
        assert turn.exit is not None
        return output, turn.exit

    def state(self, spool: Spool, name: str) -> list[str]:
        """The words of a state file; none while nobody has written any."""
        return words_of(Path(spool.path, name))

    def pid(self, spool: Spool, name: str) -> int:
        """Of the process that signs this state file, as soon as it has."""
        return signed(Path(spool.path), name)

    def marked(self, spool: Spool) -> list[int]:
        """All processes that carry the mark of the turn."""
        return [each.pid for each in look() if each.carries(f"RUNTURN_SPOOL={spool.path}\0")]

    def everything(self, spool: Spool) -> list[str]:
        """All processes of a turn: the agent's, and the shells that keep it."""
        path, variable = f"\0{spool.path}\0", f"\0RUNTURN_SPOOL={spool.path}\0"
        return [str(each) for each in look() if path in f"\0{each.command}" or variable in f"\0{each.variables}"]

    async def nothing_left(self, spool: Spool) -> None:
        await eventually(lambda: not self.everything(spool), lambda: self.everything(spool))

    def kill(self, spool: Spool, *names: str) -> None:
        """At one stroke: a watcher that found its supervisor dead would act on it."""
        pids = [self.pid(spool, name) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            until(lambda pid=pid: gone_pid(pid), f"the end of {pid}")

    def clean_up(self) -> None:
        for each in look():
            if str(self.folder) in each.command + each.variables:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)


async def drain(turn: Follower) -> bytes:
    """All further lines of a turn, each with a newline."""
    return b"".join([line + b"\n" async for batch in turn for line in batch.lines])


async def read_until(turn: Follower, line: bytes) -> None:
    """Read on until the agent has printed this line."""
    async with asyncio.timeout(120):
        async for batch in turn:
            if line in batch.lines:
                return
    raise AssertionError(f"the turn ended before it printed {line!r}")


async def eventually(condition: Callable[[], object], state: Callable[[], object] = lambda: "") -> None:
    """Wait until the condition holds; fail when it does not hold soon."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"still not so: {state()}"
        await asyncio.sleep(0.01)

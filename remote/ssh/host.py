"""A host reached over SSH: its connections, shared by all turns of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from asyncssh import SSHClientConnection

from remote.errors import HostError, HostUnreachable
from remote.ssh.channel import SshChannel
from remote.ssh.circuit_breaker import CircuitBreaker
from remote.ssh.connector import Connector
from remote.ssh.error_mapping import ConnectionDropped
from remote.ssh.multiplexed import ConnectionFull, MultiplexedConnection
from remote.ssh.target import Target

_HANDSHAKES = 8  # at a time; sshd refuses some from 10 on (MaxStartups)
_RETRIES = 3  # of a handshake that the host drops: other clients connect, too
_JITTER_S = 1.0  # maximum before the first retry; doubled for each further one
_IDLE_S = 60.0  # a connection that is unused for this long is closed


class Observer:
    """Observer of attempts to connect. This one does nothing."""

    def connected(self, host: str, seconds: float) -> None:
        """Record a connection that took `seconds` to open."""

    def refused(self, host: str, error: HostError) -> None:
        """Record a failed attempt, retries of the handshake included."""


class SshHost:
    """A `remote.host.Host` that opens shells over as few connections as they need. Belongs to one event loop.

    While no connection is open, only one is opened, and all callers wait for it: a host that is down, or refuses
    the login, is contacted once.
    """

    def __init__(
        self,
        target: Target,
        connector: Connector,
        *,
        observer: Observer | None = None,
        idle_s: float = _IDLE_S,
        rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._target = target
        self._connector = connector
        self._observer = observer or Observer()
        self._idle_s = idle_s
        self._rng = rng or Random()  # noqa: S311 - jitter is no secret
        self._clock = clock
        self._sleep = sleep
        self._cool_down = CircuitBreaker(target.name, self._rng, clock)
        self._handshakes = asyncio.Semaphore(_HANDSHAKES)
        self._retrying = asyncio.Lock()
        self._links: list[MultiplexedConnection] = []
        self._idle_timers: dict[MultiplexedConnection, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def name(self) -> str:
        """Return the display name."""
        return self._target.name

    @property
    def path(self) -> str:
        """Return the directories to put before the PATH of its shells."""
        return self._target.path

    @property
    def connections(self) -> int:
        """Return the number of open and opening connections."""
        return len(self._links)

    @property
    def channels(self) -> int:
        """Return the number of channels that are open, or wait for a connection or the host."""
        return sum(link.users for link in self._links)

    @property
    def rest_s(self) -> float:
        """Return the seconds for which to avoid it after failures; 0: it is ready."""
        return self._cool_down.rest_s

    @property
    def failing(self) -> bool:
        """Return True if it was avoided and no connect has succeeded since."""
        return self._cool_down.failing

    async def open_channel(self) -> SshChannel:
        """Start a shell there. Raise HostUnreachable, HostAuthFailed or HostKeyChanged."""
        while True:
            link = await self._link_with_room()
            try:
                return await link.open_shell()
            except ConnectionFull:
                continue

    async def close(self) -> None:
        """Close all connections, and open no more. Turns keep running on the host."""
        self._closed = True
        for link in list(self._links):
            self._drop(link)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _link_with_room(self) -> MultiplexedConnection:
        while True:
            if self._closed:
                raise HostUnreachable(self._target.name, "its connections were closed by us")
            for link in self._links:
                if link.has_room:
                    return link
            first = self._first_to_wait_for()
            if first is None:
                return self._new_link()
            await first.connection.made()

    def _first_to_wait_for(self) -> MultiplexedConnection | None:
        """Return the link that is opening while no other is open."""
        if any(link.connection.stands for link in self._links):
            return None
        return next((link for link in self._links if not link.connection.over), None)

    def _new_link(self) -> MultiplexedConnection:
        self._cool_down.check()
        link = MultiplexedConnection(self._target.name, self._connect(), lambda: self._changed(link))
        self._links.append(link)
        return link

    async def _connect(self) -> SSHClientConnection:
        began_at = self._clock()
        try:
            connection = await self._shake_hands()
        except HostError as error:
            self._cool_down.failed(error, began_at)
            self._observer.refused(self._target.name, error)
            raise
        self._cool_down.succeeded()
        self._observer.connected(self._target.name, self._clock() - began_at)
        return connection

    async def _shake_hands(self) -> SSHClientConnection:
        try:
            async with self._handshakes:
                return await self._try()
        except ConnectionDropped as error:
            dropped = error
        for retry in range(_RETRIES):
            await self._sleep(self._rng.uniform(0.0, _JITTER_S * 2**retry))
            try:
                async with self._alone():
                    return await self._try()
            except ConnectionDropped as error:
                dropped = error
        raise HostUnreachable(dropped.host, dropped.message) from dropped

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold off all other handshakes: the host has had too many of ours at a time."""
        async with self._retrying, AsyncExitStack() as stack:
            for _ in range(_HANDSHAKES):
                await stack.enter_async_context(self._handshakes)
            yield

    async def _try(self) -> SSHClientConnection:
        self._cool_down.check()  # others may have failed while we waited
        return await self._connector.connect(self._target)

    def _changed(self, link: MultiplexedConnection) -> None:
        """Handle a link that has opened, lost a channel, or ended."""
        timer = self._idle_timers.pop(link, None)
        if timer is not None:
            timer.cancel()
        if link.idle and link.retired:
            self._drop(link)
        elif link.idle and link.connection.stands:  # an opening one may have callers waiting
            loop = asyncio.get_running_loop()
            self._idle_timers[link] = loop.call_later(self._idle_s, self._close_idle, link)

    def _close_idle(self, link: MultiplexedConnection) -> None:
        self._idle_timers.pop(link, None)
        if link.idle:
            self._drop(link)

    def _drop(self, link: MultiplexedConnection) -> None:
        if link in self._links:
            self._links.remove(link)
            task = asyncio.create_task(link.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

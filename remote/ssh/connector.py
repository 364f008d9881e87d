"""Connecting to a host as the user's ssh would: by ssh_config, with known host keys, through jump hosts."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh
from asyncssh import SSHClientConnection

from remote.errors import HostError
from remote.ssh.error_mapping import connect_error, preparation_error
from remote.ssh.host_keys import HostKeys
from remote.ssh.jump_hosts import JumpHosts
from remote.ssh.login import DEAD_S, Login, Logins
from remote.ssh.target import Target, hops

_CONNECT_S = 30.0  # for TCP and login together


@dataclass(frozen=True, slots=True)
class Route:
    """A login, and the jump host before it, if any, with the route there."""

    login: Login
    jump: str = ""
    before: Route | None = None


class Connector:
    """Opens connections, for one event loop."""

    def __init__(
        self,
        targets: Iterable[Target],
        host_keys: HostKeys,
        *,
        config_file: Path | None = None,
        timeout_s: float = _CONNECT_S,
    ) -> None:
        """Use `config_file` as the ssh_config, by default ~/.ssh/config."""
        self._targets = {target.name: target for target in targets}
        self._host_keys = host_keys
        self._config_file = config_file
        self._logins = Logins(config_file, timeout_s)
        self._jump_hosts = JumpHosts()

    async def connect(self, target: Target) -> SSHClientConnection:
        """Connect and log in. Raise HostUnreachable, HostAuthFailed or HostKeyChanged."""
        return await self._connect(await self._route(target, ()))

    async def _route(self, target: Target, through: tuple[str, ...]) -> Route:
        """Resolve the whole route before connecting: in a cycle, connections would wait for each other forever."""
        try:
            login = await self._logins.prepare(target)
            jump = login.jump
            if jump is None:
                return Route(login)
            last_hop = self._last_hop(jump, through)
        except Exception as error:
            config = str(self._config_file or "~/.ssh/config")
            raise preparation_error(target.name, config, error) from error
        with _at(target, f"no route through {jump}"):
            return Route(login, jump, await self._route(last_hop, (*through, jump)))

    def _last_hop(self, jump: str, through: tuple[str, ...]) -> Target:
        if jump in through:
            raise ValueError(f"its jump hosts lead back to {jump}")
        *before, last = hops(jump)
        hop = self._targets.get(last.name, last)
        return replace(hop, jump=",".join(earlier.name for earlier in before)) if before else hop

    async def _connect(self, route: Route) -> SSHClientConnection:
        before = route.before
        if before is None:
            return await self._log_in(route.login, None)
        gateway = self._jump_hosts.enter(route.jump, lambda: self._connect(before))
        target = route.login.target
        try:
            with _at(target, f"no route through {route.jump}"):
                tunnel = await gateway.connection.made()
            with _at(target, f"through {route.jump}"):
                connection = await self._log_in(route.login, tunnel)
        except BaseException:
            gateway.leave()
            raise
        gateway.leave_after(connection)
        return connection

    async def _log_in(self, login: Login, tunnel: SSHClientConnection | None) -> SSHClientConnection:
        name = login.target.name
        check = self._host_keys.handshake(name, *login.known_as)
        try:
            connection = await asyncssh.connect(tunnel=tunnel, **login.settings(), **check.options())
        except Exception as error:
            raise check.refusal or connect_error(name, login.place, error) from error
        try:
            await check.verified(connection.get_server_host_key())
        except BaseException:
            connection.abort()
            raise
        _give_up_in_time(connection)
        return connection


@contextlib.contextmanager
def _at(target: Target, where: str) -> Iterator[None]:
    """Add to errors where they happened on the route to a target."""
    try:
        yield
    except HostError as error:
        raise type(error)(target.name, f"{where}: {error.message}") from error


def _give_up_in_time(connection: SSHClientConnection) -> None:
    """Make the kernel drop data that the host does not acknowledge in time.

    Otherwise a heartbeat sent before an outage could arrive a quarter of an hour later and renew a lease.
    """
    carrier = connection.get_extra_info("socket")
    if carrier is not None:
        with contextlib.suppress(OSError, AttributeError):  # not TCP, or not Linux
            carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_S * 1000)

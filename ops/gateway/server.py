"""The gateway's HTTP server and its connections to APIs."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from adapters.toolkit.wire import Wire
from ops.gateway.exchange import Abandoned
from ops.gateway.gateway import Gateway, Limits
from ops.gateway.notes import Notebook
from ops.gateway.tokens import TokenSigner

# aiohttp logs what it cannot read, and that may be a prompt or a token.
_SILENT = logging.getLogger(f"{__name__}.http")
_SILENT.disabled = True

_BUFFER = 16 * 2**10  # bytes that a connection may hold; twice that while its reader is slow
_CONNECT_S = 30.0
_LINGER_S = 1.0  # for a client that is still sending the body of a request that was refused
_UNUSED_S = 75.0  # an agent's connection without a request
_LEAST_S = 0.01  # aiohttp takes 0 for endless
_IDLE_S = 15.0  # an unused connection to an API is closed before the API closes it
# A host that has lost its network or its power says nothing: its connections end after these seconds.
_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_UNSENT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Served:
    """A server that listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Return the address of its APIs, without a slash at the end."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@asynccontextmanager
async def serve(
    wires: Mapping[str, Wire],
    signer: TokenSigner,
    notebook: Notebook,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    abandoned: Abandoned = Abandoned(),  # noqa: B008
    grace_s: float = 60.0,
) -> AsyncIterator[Served]:
    """Serve until the context ends; answers under way then have `grace_s` seconds. Raises OSError."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S)
    session = aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_BUFFER,
        skip_auto_headers=("user-agent", "accept", "content-type"),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=_CONNECT_S, sock_read=None),
    )
    async with session:
        gateway = Gateway(wires, signer, notebook, session, time.time, limits=limits, abandoned=abandoned)
        server = web.Server(
            gateway.answer,
            auto_decompress=False,
            read_bufsize=_BUFFER,
            lingering_time=_LINGER_S,
            keepalive_timeout=_UNUSED_S,
            access_log=None,
            logger=_SILENT,
        )
        # aiohttp waits twice: for requests to end, and for their handlers.
        runner = web.ServerRunner(server, shutdown_timeout=max(grace_s / 2, _LEAST_S))
        await runner.setup()
        try:
            listening = _listen(host, port)
            await web.SockSite(runner, listening).start()
            yield Served(host, listening.getsockname()[1])
        finally:
            await runner.cleanup()
            await gateway.close()


def _listen(host: str, port: int) -> socket.socket:
    """Listen; sockets of accepted connections inherit these options."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The next gateway listens before this one stops.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _ALIVE.items():
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNSENT_MS)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening

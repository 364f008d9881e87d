"""Ports for test servers."""

from __future__ import annotations

import contextlib
import secrets
import socket

_PORTS = range(15_000, 32_000)  # the kernel gives none of these to a client, so a restart finds its port free
_TRIES = 100
_kept: list[socket.socket] = []


def free_port() -> int:
    """Return an unused port of 127.0.0.1 that no other test receives while this process runs."""
    for _ in range(_TRIES):
        port = secrets.choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _keep(port)
            return port
    raise RuntimeError(f"no free port between {_PORTS[0]} and {_PORTS[-1]}")


def _keep(port: int) -> None:
    """Reserve the port by a name that the kernel grants to one process at a time. Raises OSError if taken."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0runturn-test-port-{port}")
    except OSError:
        name.close()
        raise
    _kept.append(name)

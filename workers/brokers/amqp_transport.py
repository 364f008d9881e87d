"""RabbitMQ transport that gives up a link that was cut in the middle of a frame.

amqp asks for the rest of a frame again and again, whatever its time limit. On an event loop, that takes a whole
core, and the loop does nothing else: it would not even notice that heartbeats are missing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kombu import transport as kombu_transport
from kombu.transport import pyamqp


class _Connection(pyamqp.Connection):  # type: ignore[misc]  # kombu has no types
    """A connection that waits for each part of a frame as it does for the first."""

    def Transport(self, *args: Any, **kwargs: Any) -> Any:
        """Return the socket, for amqp."""
        transport = super().Transport(*args, **kwargs)
        transport._read = partial(_read, transport._read)
        return transport


def _read(read: Any, size: int, initial: bool = False) -> Any:
    return read(size, True)


class Transport(pyamqp.Transport):  # type: ignore[misc]  # as above
    """kombu's transport with the connection above."""

    Connection = _Connection


class SSLTransport(pyamqp.SSLTransport):  # type: ignore[misc]  # as above
    """The same, over TLS."""

    Connection = _Connection


def install() -> None:
    """Make all RabbitMQ connections of this process use it. Safe to call twice."""
    for scheme, transport in (("amqp", Transport), ("pyamqp", Transport), ("amqps", SSLTransport)):
        kombu_transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:{transport.__name__}"
        kombu_transport._transport_cache.pop(scheme, None)

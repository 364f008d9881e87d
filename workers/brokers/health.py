"""Broker health: whether it answers, and whether a Redis has the version and settings to lose no message."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from kombu import Connection

from workers.brokers import amqp_transport
from workers.brokers.settings import speaks_redis

_LEAST = (6, 2)  # BLMOVE, see `redis_transport`
_ANSWER_S = 4.0
_ALWAYS_THERE = "amq.direct"


class BrokerProbe:
    """A probe with its own persistent connection. Belongs to one thread."""

    def __init__(self, broker_url: str) -> None:
        amqp_transport.install()  # it connects before the worker does
        self._url = broker_url
        self._connection: Connection | None = None

    def ask(self) -> None:
        """Ask the broker, and raise whatever is wrong."""
        try:
            self._ping(self._channel())
        except Exception:
            self._hang_up()
            raise

    def _channel(self) -> Any:
        if self._connection is None:
            redis = speaks_redis(self._url)
            names = ("socket_timeout", "socket_connect_timeout") if redis else ("read_timeout", "write_timeout")
            options = dict.fromkeys(names, _ANSWER_S)
            self._connection = Connection(self._url, connect_timeout=_ANSWER_S, transport_options=options)
        return self._connection.default_channel

    def _ping(self, channel: Any) -> None:
        if speaks_redis(self._url):
            channel.client.ping()
        else:
            channel.exchange_declare(_ALWAYS_THERE, "direct", passive=True)

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # the first error is the one that matters
                connection.collect()


def fault_of_redis(info: Mapping[str, object]) -> tuple[str, str]:
    """Return what is wrong with a server that reports `info`, and what to do; both empty if nothing is."""
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _LEAST:
        return f"version {version} has no BLMOVE", "install Redis 6.2 or newer, or Valkey"
    if info.get("maxmemory") and info.get("maxmemory_policy") != "noeviction":
        return f"it drops messages when memory is short ({info['maxmemory_policy']})", (
            "set maxmemory-policy noeviction"
        )
    if not info.get("aof_enabled"):
        return "queued messages are lost when it restarts", "set appendonly yes"
    return "", ""


def reservation_about_redis(configuration: Mapping[str, object]) -> tuple[str, str]:
    """Return what a server with this configuration may lose, and what to do; both empty if nothing or unknown."""
    fsync = configuration.get("appendfsync", "always")
    if fsync == "always":
        return "", ""
    return f"with appendfsync {fsync}, it may lose its last messages when it is killed", "set appendfsync always"

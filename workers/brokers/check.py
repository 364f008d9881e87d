"""Whether a broker is one that loses nothing: its version, and how a Redis is set."""

from __future__ import annotations

from collections.abc import Mapping

from celery import Celery

from workers.brokers.settings import speaks_redis
from workers.doctor.check import Check

_LEAST = (6, 2)  # BLMOVE, see `workers.brokers.redis_transport`


def broker_check(app: Celery) -> Check:
    """The doctor's check of a broker that answers."""
    with app.connection_for_write() as connection:
        detail = connection.as_uri()
        if not speaks_redis(app.conf.broker_url):
            return Check("broker", True, detail)
        problem, remedy = fault_of_redis(connection.default_channel.client.info())
    return Check("broker", not problem, f"{detail}: {problem}" if problem else detail, remedy)


def fault_of_redis(info: Mapping[str, object]) -> tuple[str, str]:
    """What is wrong with a server that says this of itself, and what to do; empty: nothing is."""
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _LEAST:
        return f"version {version} has no BLMOVE", "install Redis 6.2 or newer, or Valkey"
    if info.get("maxmemory") and info.get("maxmemory_policy") != "noeviction":
        return f"it drops messages when memory is short ({info['maxmemory_policy']})", (
            "set maxmemory-policy noeviction"
        )
    if not info.get("aof_enabled"):
        return "what is queued is lost when it restarts", "set appendonly yes"
    return "", ""

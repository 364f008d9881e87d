"""What the doctor makes of a Redis."""

from __future__ import annotations

import pytest

from workers.brokers.health import fault_of_redis, reservation_about_redis

GOOD = {"redis_version": "7.2.4", "maxmemory": 0, "maxmemory_policy": "allkeys-lru", "aof_enabled": 1}


@pytest.mark.parametrize(
    ("said", "problem", "remedy"),
    [
        ({}, "", ""),
        ({"maxmemory": 1_000, "maxmemory_policy": "noeviction"}, "", ""),
        ({"redis_version": "6.0.16"}, "version 6.0.16 has no BLMOVE", "6.2 or newer"),
        ({"maxmemory": 1_000}, "memory is short (allkeys-lru)", "maxmemory-policy noeviction"),
        ({"aof_enabled": 0}, "lost when it restarts", "appendonly yes"),
    ],
)
def test_redis_that_may_lose_messages_is_found(said: dict[str, object], problem: str, remedy: str) -> None:
    found, advice = fault_of_redis(GOOD | said)
    assert problem in found and remedy in advice
    assert bool(found) == bool(problem)


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"appendfsync": "always"}, ""),
        ({}, ""),  # the server does not tell
        ({"appendfsync": "everysec"}, "everysec, it may lose its last messages"),
        ({"appendfsync": "no"}, "no, it may lose its last messages"),
    ],
)
def test_redis_that_answers_before_it_has_written_is_named(configuration: dict[str, object], words: str) -> None:
    reservation, advice = reservation_about_redis(configuration)
    assert words in reservation
    assert bool(reservation) == bool(words) == (advice == "set appendfsync always")

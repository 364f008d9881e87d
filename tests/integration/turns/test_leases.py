"""How long an agent lives on without a worker: as its host was told, whatever the settings have become since."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ops.ledger import Attempt
from ops.settings import AgentSettings
from remote.follower import Follower
from tests.support.fleets.site import Site
from workers.turn.leases import AgentLease

SETTINGS = AgentSettings(lease_ms=120_000, stop_grace_ms=5_000)


def attempt(**fields: Any) -> Attempt:
    return Attempt("t", 1, "far", "t.1", "seal", None, False, 1, 0.0, **fields)


def test_agent_that_was_started_with_a_longer_lease_is_waited_for_as_long() -> None:
    told = AgentLease.on(attempt(lease_s=600, stop_grace_s=20.0), SETTINGS)
    assert told.fence_s == pytest.approx(60 + 600 + 60 + 4 * 10 + 2 * 4 * 20 + 30)


def test_agent_that_was_started_with_a_shorter_lease_gets_its_heartbeats_in_time() -> None:
    assert AgentLease.on(attempt(lease_s=6, stop_grace_s=5.0), SETTINGS).beat_s == 0.5
    assert AgentLease.on(attempt(lease_s=6, stop_grace_s=5.0), SETTINGS).fence_s < AgentLease.by(SETTINGS).fence_s


def test_ladder_of_the_worker_that_starts_the_agent_counts_too() -> None:
    begun = AgentLease.on(attempt(lease_s=120, stop_grace_s=1.0), SETTINGS)
    assert begun.fence_s == AgentLease.by(SETTINGS).fence_s


def test_attempt_of_which_nobody_noted_it_is_held_by_the_settings() -> None:
    assert AgentLease.on(attempt(), SETTINGS) == AgentLease.by(SETTINGS) == AgentLease(120, 5.0)


def test_lease_is_a_whole_number_of_seconds_as_on_hosts() -> None:
    hold = AgentLease.by(AgentSettings(lease_ms=1_600))
    assert (hold.lease_s, hold.beat_s) == (2, 2 / 12)


def test_turn_is_held_with_the_lease_of_its_attempt(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, patiences = [], []

    def spy(*args: Any, lease: Any, patience: Any, **kwargs: Any) -> Any:
        leases.append(lease)
        patiences.append(patience)
        return Follower(*args, lease=lease, patience=patience, **kwargs)

    monkeypatch.setattr("workers.turn.attempt.Follower", partial(spy))
    site = Site(tmp_path)
    turn_id = site.queue(options={"recording": str(recording)})
    site.ledger.queue.begin_attempt(
        site.claim(turn_id), host="local", spool_id="s", session_id=None, resume=False,
        now=site.now(), lease_s=600, stop_grace_s=5.0,
    )  # fmt: skip
    asyncio.run(site.finish(turn_id))
    site.close()
    assert [(lease.lease_s, lease.beat_s) for lease in leases] == [(600, 50.0)]
    assert patiences[0].give_up_s == 660

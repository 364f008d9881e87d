"""Claims of a worker that is built from its settings, when the ledger's clock is set."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ops.health import Health
from ops.ledger import Ledger
from ops.ledger.schema import clocks
from ops.metrics import new_registry
from ops.settings import Settings
from ops.settings.state_dir import StateDir
from tests.support.ledger.accounts import claimed
from workers.app import create_app
from workers.turn.leases import OWNER_TTL_S
from workers.worker.bootstrap import build_worker
from workers.worker.claims import ClaimKeeper

HOUR = 3600.0


def keeper_of(tmp_path: Path, ledger: Ledger) -> ClaimKeeper:
    """The part of a worker that keeps its claims. It is not started."""
    settings, state = Settings(state_dir=tmp_path), StateDir.open(tmp_path / "state")
    app = create_app("memory://", "cache+memory://")
    worker = build_worker(settings, state, ledger, app, new_registry(), Health(str), finishes=False)
    return worker._runtime._claim_keeper


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_claim_is_renewed_by_the_ledgers_new_time(tmp_path: Path, sqlite_url: str, step: float) -> None:
    """By the old one, it would look expired to workers that have seen the new one, or last for an hour."""
    with Ledger.open(sqlite_url) as ledger:
        keeper = keeper_of(tmp_path, ledger)
        run: Any = SimpleNamespace(
            claim=claimed(ledger, owner=keeper.owner, now=ledger.clock()), renewed=lambda _: None
        )

        async def look_after() -> None:
            keeper.keep(run)
            await asyncio.to_thread(keeper._look_after)

        with ledger._database.write() as connection:
            connection.execute(clocks.update().values(difference=clocks.c.difference + step))
        new = ledger.clock() + step
        asyncio.run(look_after())
        assert ledger.reports.turn("t1").owner_expires == pytest.approx(new + OWNER_TTL_S, abs=HOUR / 4)

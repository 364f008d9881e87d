"""Opening a ledger: versions, races, and what can be in the way."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from ops.errors import LedgerTooNew, LedgerUnavailable, SettingsError
from ops.ledger import Ledger, database, migrate
from ops.ledger.schema import metadata
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import a_request, a_usage, audit, completed
from tests.support.ledger.first_schema import first_schema
from tests.support.ledger.postgresql_server import PostgresqlServer
from tests.support.ledger.processes import Crew
from tests.support.waiting import until


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Nothing yet."""
    return f"sqlite:///{tmp_path / 'ledger.sqlite3'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest) -> str:
    """Nothing yet, or a new database."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    return str(request.getfixturevalue("postgresql").new_database())


def engine_of(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@pytest.mark.parametrize("made", ["new", "upgraded"])
def test_ledger_has_what_the_schema_says(ledger_url: str, made: str) -> None:
    migrations = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    if made == "upgraded":
        with engine_of(ledger_url).begin() as connection:
            first_schema(connection, migrations)
    Ledger.open(ledger_url).close()
    with engine_of(ledger_url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == migrate.SCHEMA
    assert migrations.get_current_head() == migrate.SCHEMA


def test_ledger_is_opened_again_with_everything_in_it(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as ledger:
        completed(ledger, "t1", a_usage())
    with Ledger.open(ledger_url) as ledger:
        assert ledger.reports.turn("t1").spent.cost_usd == 0.25


def _open(_: int, url: str) -> bool:
    with Ledger.open(url) as ledger:
        return bool(ledger.queue.submit_many([a_request()], 1.0))


def test_eight_processes_open_a_new_ledger_at_once(ledger_url: str, crew: Crew) -> None:
    assert sorted(crew.together(_open, ledger_url)) == [False] * 7 + [True]


def test_new_sqlite_ledgers_are_opened_while_others_are_closed(tmp_path: Path, crew: Crew) -> None:
    for number in range(20):  # without the lock beside the file, one in twelve of these fails
        assert sum(crew.together(_open, f"sqlite:///{tmp_path / str(number)}")) == 1


def test_restored_copy_is_put_in_wal_mode_again(sqlite_url: str) -> None:
    Ledger.open(sqlite_url).close()
    with sqlite3.connect(file_of(sqlite_url)) as connection:
        assert connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    Ledger.open(sqlite_url).close()
    with sqlite3.connect(file_of(sqlite_url)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_ledger_of_a_newer_version_is_left_alone(ledger_url: str) -> None:
    Ledger.open(ledger_url).close()
    with engine_of(ledger_url).begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0042'"))
    with pytest.raises(
        LedgerTooNew, match="has schema 0042; this runturn supports schemas up to 0003: upgrade runturn"
    ):
        Ledger.open(ledger_url)


def test_sqlite_file_is_private_and_in_wal_mode(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.queue.submit_many([a_request()], 1.0)
        directory = file_of(sqlite_url).parent
        assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    with sqlite3.connect(file_of(sqlite_url)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    "url", ["", "ledger.sqlite3", "sqlite://", "sqlite:///:memory:", "mysql://h/db", "redis://h"]
)
def test_url_of_no_use_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="ledger_url: use sqlite:"):
        Ledger.open(url)


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match=r"No such file or directory; check that its .*RUNTURN_LEDGER_URL"):
        Ledger.open(f"sqlite:///{tmp_path}/nowhere/ledger.sqlite3")


def test_file_that_is_no_ledger_is_named(sqlite_url: str) -> None:
    file_of(sqlite_url).write_bytes(b"something else entirely" * 100)
    with pytest.raises(LedgerUnavailable, match=r"ledger\.sqlite3: file is not a database"):
        Ledger.open(sqlite_url)


def test_unreachable_server_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        Ledger.open(f"postgresql://me:hunter22@/db?host={tmp_path}")
    assert "ledger postgresql://me:***@/db" in str(caught.value)
    assert str(caught.value).endswith("; start it, or correct RUNTURN_LEDGER_URL")
    assert "hunter22" not in str(caught.value)


def test_missing_database_is_said_so(postgresql: PostgresqlServer) -> None:
    with pytest.raises(LedgerUnavailable, match='database "nowhere" does not exist'):
        Ledger.open(postgresql.url("nowhere"))


def test_database_in_another_encoding_is_refused_with_the_remedy(postgresql: PostgresqlServer) -> None:
    with psycopg.connect(postgresql.url("postgres"), autocommit=True) as admin:
        admin.execute("CREATE DATABASE of_bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(
                LedgerUnavailable, match=r"encoding of this database is SQL_ASCII, not UTF8; create "
            ):
                Ledger.open(postgresql.url("of_bytes"))
        finally:
            admin.execute("DROP DATABASE of_bytes WITH (FORCE)")


def test_ledger_locked_by_another_process_is_unavailable(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with Ledger.open(sqlite_url) as ledger:
        other = sqlite3.connect(file_of(sqlite_url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="another process has held the lock"):
            ledger.queue.submit_many([a_request()], 1.0)
        assert ledger.reports.history() == []  # readers do not care
        other.execute("ROLLBACK")
        assert ledger.queue.submit_many([a_request()], 2.0)
        other.close()


def test_row_locked_by_a_frozen_worker_is_unavailable(
    postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database._POSTGRESQL, "options", "-c lock_timeout=50ms")
    url = postgresql.new_database()
    with Ledger.open(url) as ledger, engine_of(url).connect() as frozen:
        ledger.queue.submit_many([a_request()], 1.0)
        frozen.execute(sa.text("SELECT * FROM turns FOR UPDATE"))
        with pytest.raises(LedgerUnavailable, match="canceling statement due to lock timeout") as caught:
            claim_turn(ledger, "t1", "w1", 1.0, 10.0)
        assert "RUNTURN_LEDGER_URL" not in str(caught.value)  # it is there, and the right one


def test_full_disk_is_unavailable_and_loses_nothing(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.queue.submit_many([a_request("before")], 1.0)
        _limit_size(ledger)
        huge = a_request("huge").model_copy(update={"prompt": "secret plan " * 200_000})
        with pytest.raises(LedgerUnavailable, match="is full; free some space, nothing was lost") as caught:
            ledger.queue.submit_many([huge], 2.0)
        assert "secret plan" not in str(caught.value)
        assert [row.turn_id for row in ledger.reports.history()] == ["before"]


def _limit_size(ledger: Ledger) -> None:
    """Let the file grow by a few pages only: what SQLite then says is what it says of a full disk."""
    engine = ledger._database.engine
    engine.dispose()

    def limit(connection: sqlite3.Connection, _: Any) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 2}")

    sa.event.listen(engine, "connect", limit)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_directory_is_unavailable(sqlite_url: str) -> None:
    file_of(sqlite_url).parent.chmod(0o500)
    with pytest.raises(LedgerUnavailable, match="Permission denied; check that its directory exists"):
        Ledger.open(sqlite_url)


def test_connections_that_the_server_ended_are_replaced(postgresql: PostgresqlServer) -> None:
    url = postgresql.new_database()
    with Ledger.open(url) as ledger:
        ledger.queue.submit_many([a_request()], 1.0)
        ours = f"datname = '{sa.make_url(url).database}'"
        postgresql.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        assert not ledger.queue.submit_many([a_request()], 2.0)


class Timer:
    """One that runs until it is cancelled, and fires whenever a test says so."""

    running: ClassVar[list[Timer]] = []
    daemon = False

    def __init__(self, _: float, fire: Callable[[], None]) -> None:
        self.fire = fire

    def start(self) -> None:
        """See `threading.Timer.start`."""
        self.running.append(self)

    def cancel(self) -> None:
        """See `threading.Timer.cancel`."""
        self.running.remove(self)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Timer]:
    """Those that would cut the connections to a server."""
    monkeypatch.setattr(Timer, "running", [])
    monkeypatch.setattr(database, "threading", SimpleNamespace(Timer=Timer, Lock=threading.Lock))
    return Timer.running


def test_transaction_is_cut_by_its_own_timer(postgresql: PostgresqlServer, timers: list[Timer]) -> None:
    """One that ends while another goes on leaves that one its timer."""
    with Ledger.open(postgresql.new_database(), 60.0) as ledger, ExitStack() as early:
        early.enter_context(ledger._database.read())
        with ledger._database.read():
            (_, second) = timers
            early.close()
            assert timers == [second]
        assert timers == []


def test_upgrade_takes_as_long_as_it_needs(
    postgresql: PostgresqlServer, timers: list[Timer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if each answer of the ledger is awaited for some seconds only."""
    url, work = postgresql.new_database(), migrate._migrate

    def late(*given: Any) -> None:
        for timer in timers:
            timer.fire()
        work(*given)

    monkeypatch.setattr(migrate, "_migrate", late)
    with Ledger.open(url, 60.0) as ledger:
        ledger.ping()


def test_large_ledger_is_upgraded_by_one_while_others_wait(
    postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database._POSTGRESQL, "options", "-c lock_timeout=50ms")
    url = postgresql.new_database()
    with psycopg.connect(url) as upgrading, ThreadPoolExecutor(1) as pool:
        upgrading.execute("SELECT pg_advisory_xact_lock(%s)", [migrate._POSTGRESQL_LOCK])
        opening = pool.submit(Ledger.open, url)
        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        until(lambda: opening.done() or upgrading.execute(waiting).fetchone() == (True,), "it to wait")
        upgrading.execute("SELECT pg_sleep(0.2)")
        upgrading.rollback()
        with opening.result() as ledger:
            ledger.ping()


def test_threads_share_a_ledger(ledger: Ledger, ledger_url: str) -> None:
    threads = [
        threading.Thread(target=completed, args=(ledger, f"t{number}", a_usage(0.1))) for number in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert audit(ledger_url) == {"opus": 24 * 3520}

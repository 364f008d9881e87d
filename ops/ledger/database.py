"""Connections and transactions, for SQLite and PostgreSQL. Database errors are mapped here and nowhere else."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NoSuchModuleError, TimeoutError

from ops.errors import LedgerUnavailable, SettingsError

COUNTED = {"preserve_rowcount": True}  # by default, SQLAlchemy drops the row count for PostgreSQL
BUSY_S = 10.0  # how long a transaction waits for another; each takes about a millisecond

# A worker frozen inside a transaction would keep its locks forever: the server ends its session.
_POSTGRESQL_OPTIONS = (
    f"-c lock_timeout={BUSY_S:.0f}s -c statement_timeout=30s -c idle_in_transaction_session_timeout=30s"
)
_POSTGRESQL = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 15,
    "keepalives_count": 3,
    "options": _POSTGRESQL_OPTIONS,
}


class Database:
    """One engine, its transactions, and its name in messages."""

    def __init__(self, engine: Engine, name: str, path: Path | None, patience_s: float | None = None) -> None:
        self.engine = engine
        self.patience_s = BUSY_S if patience_s is None else patience_s  # for another process that has a lock
        hasty = patience_s is not None and path is None
        self._in_time: Callable[[], AbstractContextManager[None]] = (
            _Cut(engine, self.patience_s).in_time if hasty else nullcontext
        )
        self._writing = engine.execution_options(writes=True)  # shares the engine's connections
        self.name = name  # the URL without its password
        self.path = path  # the SQLite file; None: PostgreSQL
        # SQLite admits one writer and makes the others poll. Within a process, a lock hands over at once.
        self._turnstile: AbstractContextManager[object] = threading.Lock() if path else nullcontext()

    @classmethod
    def at(cls, url: str, patience_s: float | None = None) -> Self:
        """Return the database at a URL, without connecting. Raises SettingsError if the URL is unusable.

        With `patience_s`, it is unavailable if an answer takes longer. Otherwise, a frozen server is waited for,
        and a lock for `BUSY_S`.
        """
        parsed = _parse(url)
        name = parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)
        if parsed.get_backend_name() == "postgresql":
            return cls(_postgresql(parsed, name, patience_s), name, None, patience_s)
        return cls(_sqlite(parsed, patience_s), name, Path(parsed.database or ""), patience_s)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Run a transaction that writes. Raises LedgerUnavailable."""
        with self._in_time(), self.write_at_length() as connection:
            yield connection

    @contextmanager
    def write_at_length(self) -> Iterator[Connection]:
        """Run a transaction that writes, and is never cut off. Raises LedgerUnavailable."""
        with self.mapped(), self._turnstile, self._writing.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run a transaction that only reads. Raises LedgerUnavailable."""
        with self.mapped(), self._in_time(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def mapped(self) -> Iterator[None]:
        """Report database errors as LedgerUnavailable, in one line; never SQL, its parameters or a password."""
        try:
            yield
        except (IntegrityError, DataError):
            raise  # runturn's fault, not the database's
        except DBAPIError as error:
            raise LedgerUnavailable(f"ledger {self.name}: {self._advised(error.orig)}") from error
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"ledger {self.name}: {self._reason(error)}") from error
        except TimeoutError as error:
            raise LedgerUnavailable(f"ledger {self.name}: all of this process's connections are in use") from error

    def _advised(self, error: BaseException | None) -> str:
        """Return the reason, with advice if the server did not answer at all: then there is no SQLSTATE."""
        if getattr(error, "sqlstate", "") is not None:
            return self._reason(error)
        return f"{self._reason(error).rstrip('.?')}; start it, or correct RUNTURN_LEDGER_URL"

    def _reason(self, error: BaseException | None) -> str:
        text = " ".join(str(error).split())
        if "locked" in text:
            return f"{text}: another process has held the lock for more than {self.patience_s:.0f} s"
        if "is full" in text:
            return f"{text}; free some space, nothing was lost"
        return text


class _Cut:
    """Cuts the connections to a server that does not answer a transaction in time.

    The server's own limits do not help if it is frozen, nor do the kernel's: its kernel still answers.
    """

    def __init__(self, engine: Engine, patience_s: float) -> None:
        self._patience_s = patience_s
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        sa.event.listen(engine, "connect", lambda connection, _: self._connections.add(connection))

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Cut the connections unless the block ends in time."""
        timer = threading.Timer(self._patience_s, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        for connection in list(self._connections):
            if not connection.closed:
                with socket.socket(fileno=os.dup(connection.fileno())) as cut, contextlib.suppress(OSError):
                    cut.shutdown(socket.SHUT_RDWR)


def upsert(dialect: str, table: Table) -> Any:
    """Return an INSERT that supports ON CONFLICT, in the named dialect."""
    if dialect == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def insert_new(connection: Connection, table: Table, **values: Any) -> bool:
    """Insert a row unless its key exists. Return True if it was inserted."""
    statement = _insert_new(connection.dialect.name, table)
    return connection.execute(statement, values, execution_options=COUNTED).rowcount == 1


@cache
def _insert_new(dialect: str, table: Table) -> Any:
    return upsert(dialect, table).on_conflict_do_nothing()


def _parse(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        backend = ""
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed
    raise _unusable("use sqlite:////absolute/path or postgresql://user@host/database")


def _unusable(advice: str) -> SettingsError:
    return SettingsError(advice, field="ledger_url", where="RUNTURN_LEDGER_URL")


def _postgresql(url: sa.URL, name: str, patience_s: float | None) -> Engine:
    hasty = {} if patience_s is None else {"connect_timeout": math.ceil(patience_s)}
    try:
        engine = sa.create_engine(
            url,
            # The default, but a server may be configured otherwise. After waiting for a lock, a transaction must
            # see what the lock's former holder wrote.
            isolation_level="READ COMMITTED",
            connect_args=_POSTGRESQL | hasty,
            pool_pre_ping=True,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise _unusable("PostgreSQL needs its driver: pip install 'runturn[postgresql]'") from error
    # First of all: SQLAlchemy itself cannot read the answers of other databases.
    sa.event.listen(engine, "connect", partial(_require_utf8, name), insert=True)
    return engine


def _require_utf8(name: str, connection: Any, _: object) -> None:
    """Refuse a database that cannot store every text, and whose driver may return bytes."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        remedy = "create one with: createdb --encoding=UTF8 --template=template0"
        raise LedgerUnavailable(f"ledger {name}: the encoding of this database is {encoding}, not UTF8; {remedy}")


def _sqlite(url: sa.URL, patience_s: float | None) -> Engine:
    busy_s = BUSY_S if patience_s is None else patience_s
    engine = sa.create_engine(url, connect_args={"timeout": busy_s}, hide_parameters=True)
    sa.event.listen(engine, "connect", _configure)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver's own transactions cannot use BEGIN IMMEDIATE
    connection.execute("PRAGMA synchronous=NORMAL")  # with WAL: no fsync per commit, no loss if runturn crashes
    connection.execute("PRAGMA foreign_keys=ON")


def _begin(connection: Connection) -> None:
    # Two deferred transactions that both read and then write fail at once; immediate ones queue up.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

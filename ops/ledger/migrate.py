"""Creation of a ledger, and its upgrade to the schema that this runturn needs.

To change the schema: change `schema.py`, add a numbered revision under `migrations/versions`, raise `SCHEMA`.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.errors import LedgerTooNew, LedgerUnavailable
from ops.ledger.database import Database
from ops.ledger.schema import metadata

SCHEMA = "0003"  # the newest revision under migrations/versions

_POSTGRESQL_LOCK = 0x72756E7475726E  # "runturn": any number not used elsewhere
_PAUSE_S = 0.01
_MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(database: Database) -> None:
    """Create the ledger, or upgrade it to `SCHEMA`. Only one process does the work.

    Raises LedgerTooNew, LedgerUnavailable.
    """
    with _alone(database):
        with database.read() as connection:
            found = _version(connection)
        _refuse_newer(database, found)
        if found != SCHEMA:
            with database.write_at_length() as connection:
                _migrate(database, connection)


def _version(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return version


def _refuse_newer(database: Database, found: str | None) -> None:
    if found is not None and int(found) > int(SCHEMA):
        raise LedgerTooNew(
            f"ledger {database.name} has schema {found}; this runturn supports schemas up to {SCHEMA}: "
            "upgrade runturn here, or set RUNTURN_LEDGER_URL to another ledger"
        )


@contextmanager
def _alone(database: Database) -> Iterator[None]:
    """Let one process at a time open a SQLite file, and switch it to WAL mode.

    The switch needs exclusive access and does not wait for it, hence a lock file next to it. It is made at every
    opening: a ledger restored from a copy may be in another mode.
    """
    if database.path is None:
        yield
        return
    os.close(_private(database, database.path))  # it contains prompts
    lock = _private(database, Path(f"{database.path}.lock"))
    try:
        _take(database, lock)
        with database.mapped(), closing(sqlite3.connect(database.path, timeout=database.patience_s)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        yield
    finally:
        os.close(lock)


def _take(database: Database, lock: int) -> None:
    """Take the lock. Its holder may be frozen, or upgrade a large ledger."""
    until = time.monotonic() + database.patience_s
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise LedgerUnavailable(
                    f"ledger {database.name}: another process has been opening it for more than "
                    f"{database.patience_s:.0f} s; find it with: fuser {database.path}.lock"
                ) from None
        time.sleep(_PAUSE_S)


def _private(database: Database, path: Path) -> int:
    """Open a private file, creating it if needed: SQLite itself would follow the umask."""
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        advice = (
            "check that its directory exists and is writable; RUNTURN_LEDGER_URL sets its path "
            "(default: in RUNTURN_STATE_DIR)"
        )
        raise LedgerUnavailable(f"ledger {database.name}: {path}: {error.strerror}; {advice}") from error


def _migrate(database: Database, connection: Connection) -> None:
    # Imported here: it takes a quarter of a second, which is saved if the ledger is up to date.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    if connection.dialect.name == "postgresql":
        for limit in ("statement_timeout", "lock_timeout"):  # a large ledger takes longer
            connection.execute(sa.text(f"SET LOCAL {limit} = 0"))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_POSTGRESQL_LOCK)))
        _refuse_newer(database, _version(connection))  # another process was faster, and is newer
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if _version(connection) is None:
        metadata.create_all(connection, checkfirst=False)  # never adopt another application's tables
        command.stamp(config, "head")
    else:
        command.upgrade(config, "head")  # does nothing if already there

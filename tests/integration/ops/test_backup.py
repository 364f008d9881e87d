"""A copy of the ledger, made as docs/operating.md says while the ledger is in use, is a ledger."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ops.ledger import Ledger
from tests.support.ledger.accounts import a_request, a_usage, completed
from tests.support.ledger.postgresql_server import PostgresqlServer, find_binaries
from tests.support.needs import missing, need
from tests.support.places import ROOT

DOCUMENT = ROOT / "docs" / "operating.md"


def commands(ledger: str) -> list[str]:
    """What the table says for this kind of ledger: how to copy it, and how to bring it back."""
    (row,) = re.findall(rf"^\| {ledger} \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    return re.findall(r"`((?:sqlite3|pg_dump|pg_restore) [^`]*)`", row)


def run(command: str, folder: Path, path: str) -> None:
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    subprocess.run(command, shell=True, cwd=folder, env=environment, check=True)


def check(url: str) -> None:
    """The copy has what was there when it was made, and goes on."""
    with Ledger.open(url) as copy:
        assert copy.reports.result("done") is not None
        assert [row.turn_id for row in copy.reports.history(9, status="queued")] == ["waits"]
        completed(copy, "later", a_usage())


def test_copy_of_sqlite(tmp_path: Path) -> None:
    need("sqlite3")
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        completed(ledger, "done", a_usage())
        ledger.queue.submit_many([a_request("waits")], 1.0)
        (copy,) = commands("SQLite")
        run(copy, tmp_path, "/usr/bin")
        ledger.queue.submit_many([a_request("late")], 1.0)
    for leftover in tmp_path.glob("ledger.sqlite3-*"):
        leftover.unlink()
    (tmp_path / "copy.sqlite3").replace(tmp_path / "ledger.sqlite3")
    check(f"sqlite:///{tmp_path}/ledger.sqlite3")


def test_copy_of_postgresql(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url, empty = postgresql.new_database(), postgresql.new_database()
    binaries = find_binaries()
    if binaries is None or not (binaries / "pg_dump").exists():
        missing("no pg_dump of the server's version")
    with Ledger.open(url) as ledger:
        completed(ledger, "done", a_usage())
        ledger.queue.submit_many([a_request("waits")], 1.0)
        dump, restore = commands("PostgreSQL")
        run(dump.replace("DATABASE", f"'{url}'"), tmp_path, str(binaries))
        ledger.queue.submit_many([a_request("late")], 1.0)
    run(restore.replace("DATABASE", f"'{empty}'"), tmp_path, str(binaries))
    check(empty)

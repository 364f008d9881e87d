"""New ledgers, copied from a migrated one because migrations take longer than most tests; queries on them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from ops.ledger import Ledger


def new_ledger(url: str) -> str:
    """Create an empty ledger in a SQLite file, unless it exists; return the URL."""
    file = Path(url.removeprefix("sqlite:///"))
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_empty())
    return url


def tasks_of(ledger: Ledger, turn_id: str) -> frozenset[str]:
    """Return the ids of the tasks that wait for a turn."""
    return frozenset(waiter.task_id for waiter in ledger.waiters.of(turn_id))


@cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory(prefix="rt-") as folder:
        file = Path(folder) / "ledger.sqlite3"
        Ledger.open(f"sqlite:///{file}").close()
        return file.read_bytes()

"""The ledger's clock, by which all workers judge claims, limits that outlast a worker, and promises to users.

On PostgreSQL, it is the server's. SQLite has only the clock of its machine, which may be set while turns run. So
there it is the time since the machine was started, plus a difference that the ledger records once for each start.

Between two looks at it, a process counts on by the time since its machine's start. So nothing that happens to this
machine's wall clock can lengthen or shorten a claim, a lease or a timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import Database, upsert
from ops.ledger.models import State
from ops.ledger.schema import clocks, turns, waiters

OFF_S: Final = 5.0  # a wall clock that differs by more is wrong; so is a ledger's clock that moves by more
_SETTLING_S = 15.0  # for the others to notice that the clock was set, and to renew their claims by it

_LEASE_S = 60.0  # no claim lasts longer, nor does the lease of a task that is being answered
_RETRY_S = 3600.0  # no retry waits longer, unless until a time that was given to us

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SERVER = sa.text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)")
_DIFFERENCE = sa.select(clocks.c.difference).where(clocks.c.boot_id == sa.bindparam("this"))

_NOW = sa.bindparam("now", type_=sa.Double)
_LATEST = _NOW + _LEASE_S

# What has times in the ledger that would be wrong if its clock moved. A queued turn that is due later has not: its
# time was given to us by a clock on the wall. Nor has a claim that expires later than claims do: it was made by a
# clock that was ahead, before this machine was started.
_UNDER_WAY = sa.select(
    sa.or_(
        sa.exists().where(turns.c.state == State.RUNNING, turns.c.owner_expires <= _LATEST),
        sa.exists().where(turns.c.state == State.WAITING, turns.c.due_at <= _NOW + _RETRY_S),
        sa.exists().where(turns.c.state == State.QUEUED, turns.c.due_at <= _NOW),
        sa.exists().where(waiters.c.settled_at.is_not(None)),
    )
)
_TOO_LONG = sa.and_(turns.c.state == State.RUNNING, turns.c.owner_expires > _LATEST)
_END_CLAIMS = (
    turns.update().where(_TOO_LONG).values(owner_expires=_NOW),
    waiters.update().where(waiters.c.leased_until > _LATEST).values(leased_until=_NOW),
    waiters.update().where(waiters.c.settled_at > _NOW).values(settled_at=_NOW),
)


def since_boot() -> float:
    """Return the seconds since this machine was started, including those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LedgerClock:
    """The ledger's clock as this process knows it, in Unix time. Thread-safe."""

    def __init__(
        self,
        database: Database,
        since_boot: Callable[[], float] = since_boot,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`wall` is this machine's clock, which may be set at any time; `since_boot` may not."""
        self._database = database
        self._since_boot = since_boot
        self._wall = wall
        self._boot_id = _boot_id()
        self._difference = wall() - since_boot()  # until it is known
        self._set_at = float("-inf")  # when the ledger's clock was last seen to be set, since boot

    def __call__(self) -> float:
        """Return the ledger's time without asking for it."""
        return self._since_boot() + self._difference

    def read(self) -> float:
        """Look at the ledger's clock, and return its time. Raises LedgerUnavailable."""
        self.look()
        return self()

    def look(self) -> None:
        """Follow the ledger's clock. Raises LedgerUnavailable."""
        with self._database.read() as connection:
            self._follow(connection)

    def trusted(self, connection: Connection) -> bool:
        """Follow the ledger's clock. Return whether a lease that has expired by it is really over.

        It may not be if the clock was just set: its owner may have renewed it by the new time. Call this in the
        transaction that takes the lease over, once it is locked, so that its owner cannot renew it any more.
        """
        self._follow(connection)
        return self.settled

    def start(self) -> None:
        """Take the first look, and `correct` the ledger's clock. Raises LedgerUnavailable."""
        self.correct()
        self.look()
        self._set_at = float("-inf")

    def correct(self) -> None:
        """Have a SQLite ledger take over its machine's wall clock, unless a turn is under way.

        Raises LedgerUnavailable.
        """
        if self._database.path is None:
            return
        with self._database.read() as connection:
            if self._stands(connection):
                return
        with self._database.write() as connection:
            if not self._stands(connection):
                self._adopt(connection)

    @property
    def settled(self) -> bool:
        """True unless the ledger's clock was just set, so that claims that look expired may not be."""
        return self._since_boot() - self._set_at >= _SETTLING_S

    @property
    def off_s(self) -> float:
        """The seconds by which this machine's wall clock is ahead of the ledger's."""
        return self._wall() - self()

    @property
    def remedy(self) -> str:
        """What to do if the two differ."""
        if self._database.path is None:
            return "synchronize both machines' clocks (NTP)"
        return (
            "it was set while turns ran, which go on by the old time; set it right, or wait: once no turn runs or "
            "waits, a worker takes over the new time"
        )

    def _follow(self, connection: Connection) -> None:
        least, most = self._bounds(connection)
        before = self._difference
        self._difference = min(max(before, least), most)
        if abs(self._difference - before) > OFF_S:
            self._set_at = self._since_boot()

    def _bounds(self, connection: Connection) -> tuple[float, float]:
        """Return the least and the most that the ledger's time may differ from the time since boot."""
        if self._database.path is not None:
            recorded = connection.scalar(_DIFFERENCE, {"this": self._boot_id})
            difference = self._difference if recorded is None else float(recorded)
            return difference, difference
        asked_at = self._since_boot()
        then = float(connection.scalar(_SERVER) or 0.0)
        return then - self._since_boot(), then - asked_at

    def _adopt(self, connection: Connection) -> None:
        """Record that the ledger's time is the wall clock's from now on, and end claims by another time."""
        since_boot, now = self._since_boot(), self._wall()
        row = {"boot_id": self._boot_id, "difference": now - since_boot}
        connection.execute(_record(connection.dialect.name), row)
        for statement in _END_CLAIMS:
            connection.execute(statement, {"now": now})

    def _stands(self, connection: Connection) -> bool:
        """Return whether the recorded clock is right, or has to be kept for the sake of a turn."""
        recorded = connection.scalar(_DIFFERENCE, {"this": self._boot_id})
        if recorded is None:
            return False
        now = self._since_boot() + float(recorded)
        if abs(self._wall() - now) <= OFF_S:
            return True
        return bool(connection.scalar(_UNDER_WAY, {"now": now}))


@cache
def _record(dialect: str) -> sa.Insert:
    new = upsert(dialect, clocks)
    statement: sa.Insert = new.on_conflict_do_update(
        index_elements=["boot_id"], set_={"difference": new.excluded.difference}
    )
    return statement


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""  # then the clock of the last start is corrected like one that was set

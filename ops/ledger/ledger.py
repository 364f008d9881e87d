"""The ledger: every operation is one short transaction.

A worker may be killed between any two calls; the docstrings say what its successor finds. A call that raised
LedgerUnavailable may or may not have been written: repeat it, nothing is booked or settled twice.

Writing for a turn requires its claim. `StaleClaim` means that another owner has taken over: nothing was written,
and the caller leaves the turn alone. Times are the ledger's: callers pass those of its `clock`.
"""

from __future__ import annotations

from typing import Self

import sqlalchemy as sa

from ops.ledger import dead_letters, events, retention, sessions, transcripts, workspaces
from ops.ledger.accounting import booking, budgets, late_usage
from ops.ledger.clock import LedgerClock
from ops.ledger.database import Database
from ops.ledger.migrate import upgrade
from ops.ledger.queue import (
    admission,
    cancellation,
    claims,
    host_slots,
    known_hosts,
    parking,
    scheduling,
    session_runs,
    settlement,
    waiters,
)
from ops.ledger.reports import backlog, costs, descriptions, live, prefixes, totals
from ops.ledger.reports import turns as turn_reports
from ops.ledger.repository import Repository, reads, writes
from ops.ledger.schema import turns

_SOMETHING = sa.select(turns.c.state).limit(1)  # reads a table, unlike SELECT 1


class Queue(Repository):
    """Turns, from a producer's request to their result."""

    submit_many = writes(admission.submit_many)
    admit = writes(admission.admit)
    refuse = writes(settlement.refuse)
    cancel = writes(cancellation.cancel)
    settle_unclaimed = writes(settlement.settle_unclaimed)
    settled = reads(settlement.settled)

    take = writes(scheduling.take)
    route = writes(claims.route)
    renew = writes(claims.renew)
    standing = reads(claims.standing)
    release = writes(claims.release)
    begin_attempt = writes(claims.begin_attempt)
    start = writes(claims.start)
    reached = writes(parking.reached)
    wait = writes(parking.wait)
    settle = writes(settlement.settle)


class SessionRuns(Repository):
    """Sessions of turns."""

    submit = writes(session_runs.submit)
    admit = writes(session_runs.admit)
    refuse = writes(session_runs.refuse)
    cancel = writes(session_runs.cancel)
    find = reads(session_runs.find)


class Waiters(Repository):
    """Celery tasks waiting for turns."""

    of = reads(waiters.of)
    turn_of = reads(waiters.turn_of)
    stamped_messages = reads(waiters.stamped_messages)
    unanswered = reads(waiters.unanswered)
    lease = writes(waiters.lease)
    renew = writes(waiters.renew)
    put_off = writes(waiters.put_off)
    told = writes(waiters.told)


class Hosts(Repository):
    """Hosts that workers have announced, and how many of their slots are taken."""

    announce = writes(known_hosts.announce)
    known = reads(known_hosts.known)
    open_attempts = reads(host_slots.open_attempts)


class Sessions(Repository):
    """Agents' sessions: where they are, and which turn has locked them."""

    lock = writes(sessions.lock)
    find = reads(sessions.find)


class Workspaces(Repository):
    """Workspaces made for turns."""

    place = writes(workspaces.place)
    made = reads(workspaces.made)
    used_at = reads(workspaces.used_at)


class Events(Repository):
    """Events of turns, numbered from 1."""

    append = writes(events.append)
    append_many = writes(events.append_many)
    after = reads(events.after)
    last_seq = reads(events.last_seq)


class Accounting(Repository):
    """Usage of attempts, including usage read late."""

    amend = writes(late_usage.amend)
    by_spool = reads(late_usage.by_spool)
    usage_of = reads(booking.usage_of)


class Budgets(Repository):
    """Spending limits of turns by label."""

    all_of = reads(budgets.all_of)
    put = writes(budgets.put)
    remove = writes(budgets.remove)


class Transcripts(Repository):
    """Contents for the archive of transcripts."""

    keep_stderr = writes(transcripts.keep_stderr)
    unarchived = reads(transcripts.unarchived)
    source = reads(transcripts.source)
    archived = writes(transcripts.archived)


class Retention(Repository):
    """Removal of old turns and sessions."""

    forget = writes(retention.forget)


class Reports(Repository):
    """Reports for people and Prometheus."""

    turn = reads(turn_reports.turn)
    request = reads(turn_reports.request)
    result = reads(turn_reports.result)
    history = reads(turn_reports.history)
    starting_with = reads(prefixes.starting_with)
    labels = reads(descriptions.labels)
    prompts = reads(descriptions.prompts)
    cost = reads(costs.cost)
    total_cost = reads(costs.total)
    queue_depths = reads(backlog.queue_depths)
    backlog = reads(backlog.backlog)
    running = reads(live.running)
    spending = reads(live.spending)
    host_loads = reads(live.host_loads)
    totals = reads(totals.totals)


class DeadLetterStore(Repository):
    """Messages that no worker could read."""

    keep = writes(dead_letters.keep)
    newest = reads(dead_letters.newest)
    count = reads(dead_letters.count)
    find = reads(dead_letters.find)
    remove = writes(dead_letters.remove)
    sent_again = writes(dead_letters.sent_again)


class Ledger:
    """The ledger. Thread-safe; each process opens its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.clock = LedgerClock(database)
        self.queue = Queue(database)
        self.session_runs = SessionRuns(database)
        self.waiters = Waiters(database)
        self.hosts = Hosts(database)
        self.sessions = Sessions(database)
        self.workspaces = Workspaces(database)
        self.events = Events(database)
        self.accounting = Accounting(database)
        self.budgets = Budgets(database)
        self.transcripts = Transcripts(database)
        self.retention = Retention(database)
        self.reports = Reports(database)
        self.dead_letters = DeadLetterStore(database)

    @classmethod
    def open(cls, url: str, patience_s: float | None = None) -> Self:
        """Open `sqlite:///PATH` or `postgresql://…`, and upgrade its schema.

        Any number of processes may do so at once. With `patience_s`, all operations fail if the ledger does not
        answer for so long. Raises SettingsError for any other URL, LedgerUnavailable, LedgerTooNew.
        """
        ledger = cls(database := Database.at(url, patience_s))
        try:
            upgrade(database)
            ledger.clock.start()
        except BaseException:
            database.close()
            raise
        return ledger

    @staticmethod
    def name_of(url: str) -> str:
        """Return a ledger's name in messages: its URL without the password. Raises SettingsError."""
        return Database.at(url).name

    def ping(self) -> None:
        """Raise LedgerUnavailable unless the database answers."""
        with self._database.read() as connection:
            connection.execute(_SOMETHING)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""The ledger: every operation is one short transaction.

A worker may be killed between any two calls; the docstrings say what its successor finds. A call that ended with
LedgerUnavailable may have been written or not: repeat it, nothing is booked or settled twice.

Whoever writes for a turn shows its claim. `StaleClaim` says that another owner has taken over: nothing was
written, and the caller leaves the turn alone. Clocks are the callers'; keep them in step to well below a lease.
"""

from __future__ import annotations

from typing import Self

import sqlalchemy as sa

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult
from ops.ledger import dead_letters, events, retention, sessions, transcripts, workspaces
from ops.ledger.accounting import booking, budgets, late_usage
from ops.ledger.accounting.budgets import Budget, BudgetKey
from ops.ledger.accounting.money import nano
from ops.ledger.database import Database
from ops.ledger.migrate import upgrade
from ops.ledger.models import Claim, Waiter
from ops.ledger.queue import (
    admission,
    claims,
    host_slots,
    known_hosts,
    parking,
    reachability,
    scheduling,
    session_runs,
    settlement,
    waiters,
)
from ops.ledger.queue.admission import Asked
from ops.ledger.queue.session_runs import AskedSession
from ops.ledger.queue.settlement import Busy
from ops.ledger.reports import backlog, costs, live, totals
from ops.ledger.reports import turns as turn_reports
from ops.ledger.repository import Repository, reads, writes
from ops.ledger.schema import turns

_SOMETHING = sa.select(turns.c.state).limit(1)  # from the database itself


class Queue(Repository):
    """Turns, from a producer's request to their result."""

    submit_many = writes(admission.submit_many)
    cancel = writes(settlement.cancel)
    settle_unclaimed = writes(settlement.settle_unclaimed)
    settled = reads(settlement.settled)

    take = writes(scheduling.take)
    renew = writes(claims.renew)
    standing = reads(claims.standing)
    release = writes(claims.release)
    begin_attempt = writes(claims.begin_attempt)
    reached = writes(reachability.reached)
    wait = writes(parking.wait)
    settle = writes(settlement.settle)

    def admit(
        self,
        request: TurnRequest,
        task_id: str,
        now: float,
        due_at: float | None = None,
        *,
        expires_at: float | None = None,
        revoked: bool = False,
        follows: str = "",
        message: str | None = None,
    ) -> Asked:
        """Record a turn that a Celery task asks for, and that the task is to be told its result.

        With the result if there is one already: tell the task. A new turn may be taken from `due_at` on, or at
        once; it does not begin after `expires_at`, unless others want it. One that is `revoked` is cancelled
        unless it is running. `message` is what is kept of the task's message until the task knows the result;
        one that something else is to follow on is kept beside it. Killed after: whoever settles the turn tells
        the task, or finds it among the `unanswered`.
        """
        waiter = Waiter(request.turn_id, task_id, follows, message)
        with self.database.write() as connection:
            asked = admission.admit(connection, request, waiter, now, due_at, expires_at)
            if revoked:
                settlement.cancel(connection, request.turn_id, now, running=False)
            return asked

    def refuse(
        self,
        turn_id: str,
        agent: str,
        result: TurnResult,
        task_id: str,
        now: float,
        *,
        follows: str = "",
        message: str | None = None,
    ) -> Asked | Busy:
        """Settle a turn whose request is not valid and so was never submitted. First come, first kept.

        The task that asked for it is to be told. Busy: a valid request of that turn_id is under way; its result
        answers this one, too.
        """
        with self.database.write() as connection:
            return settlement.refuse(connection, agent, result, Waiter(turn_id, task_id, follows, message), now)

    def route(self, claim: Claim, agent: str, seq: int, line: bytes) -> Claim:
        """Give a turn whose request leaves it open an agent, with the event that says so, numbered `seq`.

        Returns the claim with it. Raises StaleClaim.
        """
        with self.database.write() as connection:
            events.append(connection, claim, seq, [line])
            return claims.route(connection, claim, agent)


class SessionRuns(Repository):
    """Sessions of turns."""

    submit = writes(session_runs.submit)
    cancel = writes(settlement.cancel_session)
    find = reads(session_runs.find)

    def admit(
        self,
        request: SessionRequest,
        task_id: str,
        now: float,
        due_at: float | None = None,
        *,
        expires_at: float | None = None,
        revoked: bool = False,
        follows: str = "",
        message: str | None = None,
    ) -> AskedSession:
        """Record a session of turns that a Celery task asks for, and that the task is to be told its result.

        With the result if there is one already: tell the task. The rest is as in `Queue.admit`.
        """
        waiter = Waiter(request.run_id, task_id, follows, message)
        with self.database.write() as connection:
            asked = session_runs.admit(connection, request, waiter, now, due_at, expires_at)
            if revoked:
                settlement.cancel_session(connection, request.run_id, now, running=False)
            return asked

    def refuse(
        self,
        result: SessionResult,
        task_id: str,
        now: float,
        *,
        follows: str = "",
        message: str | None = None,
    ) -> AskedSession:
        """Settle a session of turns whose request is not valid. First come, first kept: a valid one stands."""
        with self.database.write() as connection:
            return session_runs.refuse(connection, result, Waiter(result.run_id, task_id, follows, message), now)


class Waiters(Repository):
    """Celery tasks that wait for turns."""

    of = reads(waiters.of)
    turn_of = reads(waiters.turn_of)
    stamped_messages = reads(waiters.stamped_messages)
    unanswered = reads(waiters.unanswered)
    lease = writes(waiters.lease)
    renew = writes(waiters.renew)
    put_off = writes(waiters.put_off)
    told = writes(waiters.told)


class Hosts(Repository):
    """Which hosts workers know, and how many of their slots are taken."""

    announce = writes(known_hosts.announce)
    known = reads(known_hosts.known)
    open_attempts = reads(host_slots.open_attempts)


class Sessions(Repository):
    """Agents' sessions: where they live, and which turn is in them."""

    lock = writes(sessions.lock)
    find = reads(sessions.find)


class Workspaces(Repository):
    """Workspaces that turns bring."""

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
    """What attempts used, and what is known of it late."""

    amend = writes(late_usage.amend)
    by_spool = reads(late_usage.by_spool)
    usage_of = reads(booking.usage_of)


class Budgets(Repository):
    """What turns with a label may cost."""

    all_of = reads(budgets.all_of)
    remove = writes(budgets.remove)

    def put(self, key: BudgetKey, limit_usd: float, reserve_usd: float, now: float) -> Budget:
        """Set what turns with a label may cost in a period; returns where that stands.

        A new budget counts what was spent in the running period before, and reserves `reserve_usd` for each open
        attempt. A changed one keeps its sums.
        """
        with self.database.write() as connection:
            return budgets.put(connection, key, nano(limit_usd), nano(reserve_usd), now)


class Transcripts(Repository):
    """What the archive of transcripts is made of."""

    keep_stderr = writes(transcripts.keep_stderr)
    unarchived = reads(transcripts.unarchived)
    source = reads(transcripts.source)
    archived = writes(transcripts.archived)


class Retention(Repository):
    """What the books forget."""

    forget = writes(retention.forget)


class Reports(Repository):
    """What people and Prometheus read."""

    turn = reads(turn_reports.turn)
    request = reads(turn_reports.request)
    result = reads(turn_reports.result)
    history = reads(turn_reports.history)
    cost = reads(costs.cost)
    queue_depths = reads(backlog.queue_depths)
    backlog = reads(backlog.backlog)
    running = reads(live.running)
    spending = reads(live.spending)
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
    """The books. Safe for threads; every process opens its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
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
    def open(cls, url: str) -> Self:
        """Open `sqlite:///PATH` or `postgresql://…`, and bring its schema up to date.

        Any number of processes may do so at once. Raises SettingsError for a URL that is neither,
        LedgerUnavailable, LedgerTooNew.
        """
        database = Database.at(url)
        try:
            upgrade(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def ping(self) -> None:
        """Find out whether the database answers. Raises LedgerUnavailable."""
        with self._database.read() as connection:
            connection.execute(_SOMETHING)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

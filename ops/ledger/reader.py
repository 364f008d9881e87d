"""What the ledger tells. Nothing here writes, or waits for somebody who does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.usage import Usage
from ops.ledger import events, sessions, transcripts, workspaces
from ops.ledger.accounting import booking, budgets, late_usage
from ops.ledger.accounting.budgets import Budget
from ops.ledger.accounting.late_usage import SpoolRow
from ops.ledger.database import Database
from ops.ledger.models import Claim, State, Waiter
from ops.ledger.queue import claims, host_slots, known_hosts, session_runs, settlement, waiters
from ops.ledger.queue.claims import Renewal
from ops.ledger.queue.known_hosts import Seen
from ops.ledger.queue.session_runs import SessionRun
from ops.ledger.reports import backlog, costs, totals
from ops.ledger.reports import live as overview
from ops.ledger.reports import turns as history
from ops.ledger.reports.backlog import Backlog
from ops.ledger.reports.costs import CostKey, CostRow
from ops.ledger.reports.live import RunningTurn, Spending
from ops.ledger.reports.totals import Totals
from ops.ledger.reports.turns import TurnRow
from ops.ledger.schema import turns
from ops.ledger.sessions import SessionRow
from ops.ledger.transcripts import TranscriptSource
from ops.ledger.workspaces import MadeWorkspace

_SOMETHING = sa.select(turns.c.state).limit(1)  # from the database itself


class LedgerReader:
    """The reading half of the books. All methods raise LedgerUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def standing(self, claimed: Collection[Claim]) -> Renewal:
        """What has become of claims, without prolonging them: nothing is written, so it may be asked often."""
        with self._database.read() as connection:
            return claims.standing(connection, claimed)

    def known_hosts(self) -> Mapping[str, list[Seen]]:
        """The hosts that workers have known within the last day, by name."""
        with self._database.read() as connection:
            return known_hosts.known(connection)

    def session(self, session_id: str) -> SessionRow | None:
        """Where a session lives; None: not known."""
        with self._database.read() as connection:
            return sessions.find(connection, session_id)

    def made_workspace(self, turn_id: str) -> MadeWorkspace | None:
        """What is known of the workspace that a turn brought; None: the turn is not known."""
        with self._database.read() as connection:
            return workspaces.made(connection, turn_id)

    def workspace_used_at(self, workspace: str) -> float | None:
        """When the last turn in a workspace was settled; None: some turn there is not. It reads all turns."""
        with self._database.read() as connection:
            return workspaces.used_at(connection, workspace)

    def events(self, turn_id: str, after_seq: int = 0) -> list[tuple[int, bytes]]:
        """The stored events after a sequence number, in order; the first event of a turn is number 1."""
        with self._database.read() as connection:
            return events.after(connection, turn_id, after_seq)

    def last_seq(self, turn_id: str) -> int:
        """The sequence number of the last event stored; 0: none."""
        with self._database.read() as connection:
            return events.last_seq(connection, turn_id)

    def waiters(self, turn_id: str) -> frozenset[str]:
        """The task ids that have yet to be told the turn's result."""
        with self._database.read() as connection:
            return frozenset(waiter.task_id for waiter in waiters.of(connection, turn_id))

    def waiting(self, turn_id: str) -> tuple[Waiter, ...]:
        """The tasks that have yet to be told the turn's result, with what is kept of each."""
        with self._database.read() as connection:
            return waiters.of(connection, turn_id)

    def stamped_messages(self) -> Mapping[str, str]:
        """What is kept of the messages that have stamps, by task id, of tasks whose turns have not ended."""
        with self._database.read() as connection:
            return waiters.stamped_messages(connection)

    def unanswered(self, now: float, limit: int = 100) -> list[str]:
        """Turns that have ended and for which tasks still wait, without those whose tasks somebody is telling."""
        with self._database.read() as connection:
            return waiters.unanswered(connection, now, limit)

    def unarchived(
        self, settled_before: float, after: tuple[float, str] = (0.0, ""), limit: int = 100
    ) -> list[tuple[float, str]]:
        """When turns were settled that have no transcript in the archive yet, and their ids; the oldest first.

        `after` is the last one of the page before.
        """
        with self._database.read() as connection:
            return transcripts.unarchived(connection, settled_before, after, limit)

    def transcript_source(self, turn_id: str) -> TranscriptSource | None:
        """What the transcript of a settled turn is made of; None: it is in the archive, or there is none."""
        with self._database.read() as connection:
            return transcripts.source(connection, turn_id)

    def turn_of(self, task_id: str) -> str | None:
        """The turn that a Celery task waits for; None: none is known."""
        with self._database.read() as connection:
            return waiters.turn_of(connection, task_id)

    def usage_of(self, turn_id: str) -> Mapping[int, Usage]:
        """What each ended attempt of a turn used, by attempt."""
        with self._database.read() as connection:
            return booking.usage_of(connection, turn_id)

    def attempts_by_spool(self, spool_ids: Collection[str]) -> Mapping[str, SpoolRow]:
        """The attempts that these spools belong to; those that are missing are not known to this ledger."""
        with self._database.read() as connection:
            return late_usage.by_spool(connection, spool_ids)

    def budgets(self, now: float) -> list[Budget]:
        """All budgets, by their labels."""
        with self._database.read() as connection:
            return budgets.all_of(connection, now)

    def open_attempts(self) -> Mapping[str, int]:
        """How many slots are taken, by host; a host that is missing has none taken."""
        with self._database.read() as connection:
            return host_slots.open_attempts(connection)

    def turn(self, turn_id: str) -> TurnRow:
        """One turn. Raises UnknownTurn."""
        with self._database.read() as connection:
            return history.turn(connection, turn_id)

    def request(self, turn_id: str) -> TurnRequest | None:
        """What was asked; None: the turn is not known, or its request was refused or is forgotten."""
        with self._database.read() as connection:
            return history.request(connection, turn_id)

    def result(self, turn_id: str) -> TurnResult | None:
        """What came of it; None: not settled, or not known."""
        with self._database.read() as connection:
            return history.result(connection, turn_id)

    def session_run(self, run_id: str) -> SessionRun | None:
        """A session of turns; None: not known."""
        with self._database.read() as connection:
            return session_runs.find(connection, run_id)

    def settled(self, turn_ids: Collection[str]) -> frozenset[str]:
        """Those of these turns that have their result."""
        with self._database.read() as connection:
            return settlement.settled(connection, turn_ids)

    def history(
        self,
        limit: int = 50,
        *,
        status: str | None = None,
        agent: str | None = None,
        host: str | None = None,
        label: tuple[str, str] | None = None,
    ) -> list[TurnRow]:
        """The newest turns first. `status` is a state (queued, running, waiting) or how a turn ended."""
        with self._database.read() as connection:
            return history.history(connection, limit, status=status, agent=agent, host=host, label=label)

    def cost(self, by: CostKey, since: float | None = None) -> list[CostRow]:
        """The bill, highest cost first. By label, a turn counts once for each of its labels."""
        with self._database.read() as connection:
            return costs.cost(connection, by, since)

    def backlog(self, now: float) -> Backlog:
        """What waits, and what runs where."""
        with self._database.read() as connection:
            return backlog.backlog(connection, now)

    def running(self, limit: int) -> tuple[int, list[RunningTurn]]:
        """How many turns run, and the oldest of them."""
        with self._database.read() as connection:
            return overview.running(connection, limit)

    def spending(self, since: Sequence[float]) -> list[Spending]:
        """What the attempts used that ended at or after each of these times."""
        with self._database.read() as connection:
            return overview.spending(connection, since)

    def ping(self) -> None:
        """Find out whether it answers."""
        with self._database.read() as connection:
            connection.execute(_SOMETHING)

    def totals(self) -> Totals:
        """What metrics show."""
        with self._database.read() as connection:
            return totals.totals(connection)

    def queue_depths(self) -> Mapping[State, int]:
        """How many turns are queued, running and waiting."""
        with self._database.read() as connection:
            return backlog.queue_depths(connection)

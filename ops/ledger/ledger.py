"""The ledger: every operation is one short transaction.

A worker may be killed between any two calls; the docstrings say what its successor finds. A call that ended with
LedgerUnavailable may have been written or not: repeat it, nothing is booked or settled twice.

Whoever writes for a turn shows its claim. `StaleClaim` says that another owner has taken over: nothing was
written, and the caller leaves the turn alone. Clocks are the callers'; keep them in step to well below a lease.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Self

from adapters.protocol.result import TurnResult
from adapters.protocol.session_result import Check
from adapters.usage import Usage
from ops.ledger import events, retention, sessions, transcripts, workspaces
from ops.ledger.accounting import budgets, late_usage
from ops.ledger.accounting.budgets import Budget, BudgetKey, OverBudget
from ops.ledger.accounting.money import nano
from ops.ledger.database import Database
from ops.ledger.dead_letters import DeadLetterBook
from ops.ledger.events import Batch
from ops.ledger.intake import Intake
from ops.ledger.migrate import upgrade
from ops.ledger.models import Attempt, AttemptEnd, Claim
from ops.ledger.queue import claims, known_hosts, parking, reachability, scheduling, settlement
from ops.ledger.queue.claims import Renewal
from ops.ledger.queue.host_slots import HostBusy
from ops.ledger.queue.known_hosts import Labels
from ops.ledger.retention import Forgotten
from ops.ledger.sessions import InUse, SessionRow


class Ledger(Intake):
    """The books. Safe for threads; every process opens its own."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.dead_letters = DeadLetterBook(database)

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

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, owner: str, admits: scheduling.Admits, now: float, ttl: float, limit: int) -> list[Claim]:
        """Claim up to `limit` turns, in places (see `places`) that `admits` says yes to, each asked once a turn.

        Turns of dead workers come first, then those that are queued or due: the fewest running turns of the
        producer, the higher priority, the older turn. `Claim.open` is the attempt to attach to, None: begin one.
        Killed after: nobody renews, so the leases run out after `ttl` seconds and other owners take the turns.
        """
        with self._database.write() as connection:
            return scheduling.take(connection, owner, admits, now, ttl, limit)

    def renew(self, held: Collection[Claim], now: float, ttl: float) -> Renewal:
        """Prolong the leases of these claims. Those missing in `Renewal.held` were lost: detach from them."""
        with self._database.write() as connection:
            return claims.renew(connection, held, now, ttl)

    def release(self, held: Collection[Claim], now: float) -> None:
        """Let go of running turns, so that they can be taken at once. A stale claim changes nothing.

        Their agents go on.
        """
        with self._database.write() as connection:
            claims.release(connection, held, now)

    def announce(self, hosts: Mapping[str, Labels], now: float) -> None:
        """Say that a worker knows these hosts, which have these labels; to be repeated about once a minute."""
        with self._database.write() as connection:
            known_hosts.announce(connection, hosts, now)

    def begin_attempt(
        self,
        claim: Claim,
        *,
        host: str,
        spool_id: str,
        session_id: str | None,
        resume: bool,
        now: float,
        slots: int | None = None,
        lease_s: int | None = None,
        stop_grace_s: float | None = None,
        agent_version: str | None = None,
    ) -> Attempt | HostBusy | OverBudget:
        """Record where the agent is about to run; call it before the start. Raises StaleClaim, AttemptOpen.

        HostBusy: `slots` attempts or more are open on that host already, and nothing was written; None: any number
        may be. The slot is taken until the attempt's end is booked, whatever becomes of its workers. `lease_s` and
        `stop_grace_s` are what the host will be told: a successor with other settings counts with these.
        `agent_version` is what the host was seen to have; None: not known.

        OverBudget: a budget of the turn's labels has less left than the request's `max_cost_usd`, or what the
        budget reserves for requests without one; nothing was written. Otherwise so much is reserved until the
        attempt's end is booked, and what it cost counts instead.

        Killed after: the successor's `Claim.open` names host and spool. It attaches there, or starts the
        agent there under the same spool if it never started. Repeated with the same spool, it changes nothing.
        """
        with self._database.write() as connection:
            return claims.begin_attempt(
                connection, claim, host=host, spool_id=spool_id,
                session_id=session_id, resume=resume, now=now, slots=slots,
                lease_s=lease_s, stop_grace_s=stop_grace_s, agent_version=agent_version,
            )  # fmt: skip

    def reached(self, claim: Claim) -> None:
        """Note that a worker has attached to the open attempt: its host is not out of reach. Raises StaleClaim.

        Killed before: the successor takes the host for unreachable for longer than it was, until it attaches.
        """
        with self._database.write() as connection:
            reachability.reached(connection, claim)

    def wait(
        self,
        claim: Claim,
        due_at: float,
        reason: str,
        now: float,
        ended: AttemptEnd | None = None,
        *,
        unreachable_since: float | None = None,
        host: str | None = None,
    ) -> None:
        """Park the turn until `due_at`, and book the attempt that ended, in one transaction. Raises StaleClaim.

        Append the attempt's events first: the next one is numbered from the last event stored.

        The claim is over. An attempt that is left open stays to be attached to; `unreachable_since` is noted with
        it, unless an earlier time is. The session stays locked.

        `host` is the only one that the next attempt can use, say because its session is there; None: as requested.

        Killed after: any worker takes the turn when its time has come.
        """
        with self._database.write() as connection:
            parking.wait(
                connection, claim, due_at, reason, now, ended, unreachable_since=unreachable_since, host=host
            )

    def settle(
        self,
        claim: Claim,
        result: TurnResult,
        now: float,
        ended: AttemptEnd | None = None,
        checks: Sequence[Check] = (),
    ) -> TurnResult:
        """Give the turn its result, book its last attempt and free its session, in one transaction.

        Returns the result that stands: the stored one if it was settled before. Raises StaleClaim, and
        AttemptOpen if an attempt is open and `ended` is missing. Killed before: the successor folds the spool
        again. Killed after: nobody takes the turn again. So acknowledge the message and remove the spool after.

        A turn of a session, whose `checks` were run, is followed by the next one, or by the session's end, in the
        same transaction.
        """
        with self._database.write() as connection:
            return settlement.settle(connection, claim, result, now, ended, checks)

    def lock_session(
        self, claim: Claim, session_id: str, *, agent: str, host: str, workspace: str, now: float
    ) -> SessionRow | InUse:
        """Enter a session, known or new; it is then held until the turn settles. Raises StaleClaim.

        Held by the turn, not by its owner: a successor locks again and gets it.
        """
        with self._database.write() as connection:
            return sessions.lock(
                connection, claim, session_id, agent=agent, host=host, workspace=workspace, now=now
            )

    def place_workspace(self, claim: Claim, workspace: str) -> None:
        """Note the workspace that was made for the open attempt. Raises StaleClaim.

        Call it before the agent starts: without it, the successor takes it that none was started. Killed before:
        the successor finds the workspace on the host.
        """
        with self._database.write() as connection:
            workspaces.place(connection, claim, workspace)

    def append_events(self, claim: Claim, first_seq: int, lines: Sequence[bytes]) -> int:
        """Store events, one JSON line each without a newline; returns the last sequence number stored.

        What is stored already is skipped, so a successor that folds from the start offers everything again.
        Raises StaleClaim, and EventGap if events before `first_seq` are missing: offer those, too.
        """
        with self._database.write() as connection:
            return events.append(connection, claim, first_seq, lines)

    def route(self, claim: Claim, agent: str, seq: int, line: bytes) -> Claim:
        """Give a turn whose request leaves it open an agent, with the event that says so, numbered `seq`.

        Returns the claim with it. Raises StaleClaim.
        """
        with self._database.write() as connection:
            events.append(connection, claim, seq, [line])
            return claims.route(connection, claim, agent)

    def append_many(self, batches: Sequence[Batch]) -> frozenset[str]:
        """Store one batch of events each of many turns, as `append_events` does, in one transaction.

        Returns the turns that took none, because their claim is stale or events before it are missing.
        """
        with self._database.write() as connection:
            return events.append_many(connection, batches)

    def amend_usage(self, turn_id: str, attempt: int, observed: Usage) -> bool:
        """Replace what an attempt was booked with, an estimate or nothing, by usage that was observed after all.

        False, and nothing changes: no such attempt has ended, or its usage was observed already, or this one was
        not. The bill has it where the attempt ended; the result of a turn that is settled stays as it was given.
        Killed before: the spool is still there, so the next one to tidy the host reads it. So remove it after.
        """
        with self._database.write() as connection:
            return late_usage.amend(connection, turn_id, attempt, observed)

    def set_budget(self, key: BudgetKey, limit_usd: float, reserve_usd: float, now: float) -> Budget:
        """Set what turns with a label may cost in a period; returns where that stands.

        A new budget counts what was spent in the running period before, and reserves `reserve_usd` for each open
        attempt. A changed one keeps its sums.
        """
        with self._database.write() as connection:
            return budgets.put(connection, key, nano(limit_usd), nano(reserve_usd), now)

    def remove_budget(self, key: BudgetKey) -> bool:
        """Remove a budget; False: there is none."""
        with self._database.write() as connection:
            return budgets.remove(connection, key)

    def keep_stderr(self, claim: Claim, attempt: int, text: bytes) -> None:
        """Keep what the agent wrote to stderr in an attempt, for the archive. Raises StaleClaim.

        Call it before the attempt is booked: its successor reads no spool of an attempt that has ended.
        """
        with self._database.write() as connection:
            transcripts.keep_stderr(connection, claim, attempt, text)

    def archived(self, turn_id: str, now: float) -> None:
        """Note that the archive has a turn's transcript. Killed before: it is written once more, as it was."""
        with self._database.write() as connection:
            transcripts.archived(connection, turn_id, now)

    def forget(
        self, details_before: float, turns_before: float, limit: int = 100, *, archiving: bool = False
    ) -> Forgotten:
        """Forget a batch of turns that were settled before these times; call again until it is nothing.

        `archiving`: but no turn whose transcript has yet to be put into the archive.

        First their events and requests, then the turns, and the sessions that none has used since then. History
        and bills show a turn until it is forgotten; totals never forget. Its id may be used anew from then on.
        """
        with self._database.write() as connection:
            return retention.forget(connection, details_before, turns_before, limit, archiving=archiving)

"""What comes in: turns and sessions of turns, those who ask for them, and those who want them cancelled.

Every operation is one short transaction, and needs no claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult
from ops.ledger.models import State, Waiter
from ops.ledger.queue import admission, session_runs, settlement, waiters
from ops.ledger.queue.admission import Asked
from ops.ledger.queue.session_runs import AskedSession
from ops.ledger.queue.settlement import Busy, Settled
from ops.ledger.reader import LedgerReader


class Intake(LedgerReader):
    """The books for producers, and for who receives their messages. All methods raise LedgerUnavailable."""

    def submit_many(self, requests: Iterable[TurnRequest], now: float) -> frozenset[str]:
        """Record turns as queued, in one transaction; returns the ids that were new: of others, the first stays.

        Killed before: the messages are delivered again and submit. Others who submit these turns wait
        meanwhile, so some hundred are enough.
        """
        with self._database.write() as connection:
            return admission.submit_many(connection, requests, now)

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
        with self._database.write() as connection:
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
        with self._database.write() as connection:
            return settlement.refuse(connection, agent, result, Waiter(turn_id, task_id, follows, message), now)

    def cancel(self, turn_id: str, now: float, *, running: bool = True) -> State:
        """Ask for the end of a turn, of one that is `running` only if so asked; returns where it stands.

        Its owner hears of it with the next `renew`, the next owner with its claim. A turn that waits may be taken
        at once. Raises UnknownTurn.
        """
        with self._database.write() as connection:
            return settlement.cancel(connection, turn_id, now, running=running)

    def settle_unclaimed(self, turn_id: str, result: TurnResult, now: float) -> Settled | Busy:
        """Settle a queued or waiting turn that no agent runs for: cancelled before it began. Raises UnknownTurn.

        Busy: it is running, or an attempt is open; only its owner can settle it.
        """
        with self._database.write() as connection:
            return settlement.settle_unclaimed(connection, turn_id, result, now)

    def lease(self, waiter: Waiter, now: float) -> Waiter | None:
        """Be the only one to tell a task; returns it as it is now, None: somebody else tells it, or has.

        Killed after: somebody else tells it once the lease has run out, which `renew_leases` prolongs.
        """
        with self._database.write() as connection:
            return waiters.lease(connection, waiter, now)

    def renew_leases(self, held: Iterable[Waiter], now: float) -> None:
        """Go on being the only one to tell these tasks."""
        with self._database.write() as connection:
            waiters.renew(connection, held, now)

    def put_off(self, waiter: Waiter, until: float, sent: Collection[str]) -> None:
        """Have a task told again from then on, and remember what was sent of what follows on it."""
        with self._database.write() as connection:
            waiters.put_off(connection, waiter, until, sent)

    def told(self, waiter: Waiter) -> bool:
        """Note that a task knows the result, and what follows on it is sent. Killed before: it is told again.

        Returns whether other tasks wait for its turn.
        """
        with self._database.write() as connection:
            return waiters.told(connection, waiter)

    def submit_session(self, request: SessionRequest, now: float) -> bool:
        """Record a session of turns, and the first one as queued; False: its id is known already.

        Killed before: the message is delivered again and submits. Killed after: a worker takes the turn.
        """
        with self._database.write() as connection:
            return session_runs.submit(connection, request, now)

    def admit_session(
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

        With the result if there is one already: tell the task. `expires_at`, `revoked`, killed after: see `admit`.
        """
        waiter = Waiter(request.run_id, task_id, follows, message)
        with self._database.write() as connection:
            asked = session_runs.admit(connection, request, waiter, now, due_at, expires_at)
            if revoked:
                settlement.cancel_session(connection, request.run_id, now, running=False)
            return asked

    def refuse_session(
        self,
        result: SessionResult,
        task_id: str,
        now: float,
        *,
        follows: str = "",
        message: str | None = None,
    ) -> AskedSession:
        """Settle a session of turns whose request is not valid. First come, first kept: a valid one stands."""
        with self._database.write() as connection:
            return session_runs.refuse(connection, result, Waiter(result.run_id, task_id, follows, message), now)

    def cancel_session(self, run_id: str, now: float, *, running: bool = True) -> str | None:
        """Ask for the end of a session of turns and of its open turn, of one that is `running` only if so asked.

        Returns that turn's id; None: there is nothing left to cancel, or no session of that id.
        """
        with self._database.write() as connection:
            return settlement.cancel_session(connection, run_id, now, running=running)

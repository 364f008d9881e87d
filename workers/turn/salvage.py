"""Reads what an attempt has used after its spool was lost, from its session files and its stored events.

Its agent may still be running, so it is terminated first. In a session that the turn began, the session files are
the turn's from their beginning; what its earlier attempts were booked with is taken off.
"""

from __future__ import annotations

from functools import partial

import structlog

from adapters.command import Command, SessionFiles
from adapters.contract import Adapter, Exit
from adapters.turn_state import TurnState
from adapters.usage import Usage, remainder
from ops.ledger import Attempt, Claim
from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host import Host
from remote.host_queries import end_processes, read_session_files, read_whole_session_files
from workers.context import WorkerContext
from workers.ledger_calls import LedgerCalls
from workers.turn.judgement import observe
from workers.turn.replay import at_least, recall

log = structlog.get_logger(__name__)


class Salvage:
    """Salvage of one attempt's usage."""

    def __init__(
        self,
        context: WorkerContext,
        claim: Claim,
        attempt: Attempt,
        adapter: Adapter,
        command: Command,
        ledger_call: LedgerCalls,
    ) -> None:
        self._context = context
        self._claim = claim
        self._attempt = attempt
        self._adapter = adapter
        self._command = command
        self._ledger_call = ledger_call
        self._spool = context.hosts.get(attempt.host).spool(attempt.spool_id)

    async def usage(self, state: TurnState) -> Usage:
        """Return at least what the attempt used, given its stored events; its agent is then gone.

        Raises HostUnreachable, WorkerStopping.
        """
        host = self._context.hosts.get(self._attempt.host).host
        state.session_id = state.session_id or self._attempt.session_id
        booked = await self._earlier(state) if self._of_turn else []
        try:
            await end_processes(host, self._spool)
            read = self._read_whole if self._of_turn else self._read_part
            judged = await observe(
                self._adapter, state, Exit(None), self._command, host, self._spool, partial(read, host)
            )
        except HostUnreachable:
            raise
        except HostError as fault:
            log.warning("the usage of an attempt without a spool cannot be read", error=str(fault))
            return at_least(state.estimate)
        usage = judged.usage
        return at_least(remainder(usage, booked) if usage.source.observed else usage)

    async def _read_whole(self, host: Host, files: SessionFiles) -> bytes:
        return await read_whole_session_files(host, self._command, files)

    async def _read_part(self, host: Host, files: SessionFiles) -> bytes:
        """Return what the attempt has added to the files, or nothing if its spool is missing and cannot tell."""
        try:
            return await read_session_files(host, self._spool, files)
        except SpawnRefused:
            return b""

    async def _earlier(self, state: TurnState) -> list[Usage]:
        """Return what the turn's earlier attempts in the session were booked with, and add their answers."""
        earlier = [attempt for attempt in self._in_session if attempt.attempt < self._attempt.attempt]
        for attempt in earlier:
            stored = await self._ledger_call(
                self._context.ledger.events.after, self._claim.turn_id, attempt.first_seq - 1
            )
            recalled, _ = recall(attempt.first_seq, (line for _, line in stored))
            state.answers = {**recalled.answers, **state.answers}
        booked = await self._ledger_call(self._context.ledger.accounting.usage_of, self._claim.turn_id)
        return [booked[attempt.attempt] for attempt in earlier if attempt.attempt in booked]

    @property
    def _of_turn(self) -> bool:
        """True if the turn began the session."""
        return not self._attempt.resume or any(not attempt.resume for attempt in self._in_session)

    @property
    def _in_session(self) -> list[Attempt]:
        session = self._attempt.session_id
        return [attempt for attempt in self._claim.attempts if session and attempt.session_id == session]

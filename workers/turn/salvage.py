"""Reads what an attempt has used that cannot be read to its end, from its session files and its stored events.

Its agent may still be running, so it is terminated first. Without a spool, in a session that the turn began, the
session files are the turn's from their beginning; what its earlier attempts were booked with is taken off.
"""

from __future__ import annotations

import structlog

from adapters.command import Command, SessionFiles
from adapters.contract import Adapter, Exit
from adapters.turn_state import TurnState
from adapters.usage import Usage, remainder
from ops.ledger import Attempt, Claim
from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host_queries import end_processes, read_session_files, read_whole_session_files
from workers.context import WorkerContext
from workers.ledger_calls import LedgerCalls
from workers.turn.judgement import ReadFiles, observe
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
        host = context.hosts.get(attempt.host)
        self._host = host.host
        self._spool = host.spool(attempt.spool_id)

    async def of_lost_spool(self, state: TurnState) -> Usage:
        """Return at least what an attempt without a spool used, given its stored events; its agent is then gone.

        Raises HostError if its agent may still be running, and WorkerStopping.
        """
        await end_processes(self._host, self._spool)
        if not self._of_turn:
            return at_least(await self._usage(state, self._read_part))
        booked = await self._earlier(state)
        usage = await self._usage(state, self._read_whole)
        return at_least(remainder(usage, booked) if usage.source.observed else usage)

    async def of_stuck_turn(self, state: TurnState) -> Usage:
        """Return at least what an attempt used whose shells or output are of no use; its agent is then gone.

        Raises HostError if its agent may still be running.
        """
        try:
            await end_processes(self._host, self._spool)
        except SpawnRefused as refusal:
            if refusal.code != "spool_exists":
                raise
        return at_least(await self._usage(state, self._read_part))

    async def _usage(self, state: TurnState, read: ReadFiles) -> Usage:
        state.session_id = state.session_id or self._attempt.session_id
        try:
            judged = await observe(self._adapter, state, Exit(None), self._command, self._host, self._spool, read)
        except HostUnreachable:
            raise
        except HostError as fault:
            log.warning("the usage of an attempt cannot be read from its session files", error=str(fault))
            return state.estimate
        return judged.usage

    async def _read_whole(self, files: SessionFiles) -> bytes:
        return await read_whole_session_files(self._host, self._command, files)

    async def _read_part(self, files: SessionFiles) -> bytes:
        """Return what the attempt has added to the files, or nothing if its spool is missing and cannot tell."""
        try:
            return await read_session_files(self._host, self._spool, files)
        except SpawnRefused:
            return b""

    async def _earlier(self, state: TurnState) -> list[Usage]:
        """Return what the turn's earlier attempts in the session were booked with, and add their answers."""
        earlier = [attempt for attempt in self._in_session if attempt.attempt < self._attempt.attempt]
        if not earlier:
            return []
        events, turn_id = self._context.ledger.events, self._claim.turn_id
        stored = await self._ledger_call(events.after, turn_id, earlier[0].first_seq - 1)
        for attempt in earlier:
            recalled, _ = recall(attempt.first_seq, (line for seq, line in stored if seq >= attempt.first_seq))
            state.answers = {**recalled.answers, **state.answers}
        booked = await self._ledger_call(self._context.ledger.accounting.usage_of, turn_id)
        return [booked[attempt.attempt] for attempt in earlier if attempt.attempt in booked]

    @property
    def _of_turn(self) -> bool:
        """True if the turn began the session."""
        return not self._attempt.resume or any(not attempt.resume for attempt in self._in_session)

    @property
    def _in_session(self) -> list[Attempt]:
        session = self._attempt.session_id
        return [attempt for attempt in self._claim.attempts if session and attempt.session_id == session]

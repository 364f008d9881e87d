"""Books the usage of an attempt that was closed while its host was unreachable.

The spool is still there, with everything the agent printed. The ledger accepts observed usage once, so any number
of workers may read the same spool, and one that is killed before removing it does no harm.
"""

from __future__ import annotations

import asyncio

import structlog

from adapters.contract import Adapter, Exit, Session
from adapters.errors import InvalidRequest
from adapters.turn_state import TurnState, fold
from adapters.usage import Usage, UsageSource
from ops.ledger import Ledger, SpoolRow
from remote.backoff import Patience
from remote.errors import LineTooLong
from remote.follower import Follower, Lease
from remote.host import Host
from remote.spool import Spool
from workers.context import WorkerContext
from workers.hosts.inventory import TurnHost
from workers.turn.judgement import observe
from workers.turn.leases import ANSWER_S

_NOT_HELD = Lease(may_hold=lambda: False)  # an agent that should be dead is not to live on because it is read
_ONE_TRY = Patience(answer_s=ANSWER_S, enter_s=0.0, give_up_s=0.0)

log = structlog.get_logger(__name__)


async def book_late_usage(context: WorkerContext, host: TurnHost, spool_id: str, row: SpoolRow) -> None:
    """Read a spool whose agent is dead, and replace the estimate that its attempt was booked with.

    Nothing changes if the spool has nothing better. Raises HostError, LedgerError, and InvalidRequest for a
    request that this worker cannot read or build a command from.
    """
    usage, orphaned = await _read_usage(context, host, spool_id, row)
    if usage.source is UsageSource.SESSION_FILES and await asyncio.to_thread(_resumed, context.ledger, row):
        log.warning("cannot tell late usage from that of later turns", turn_id=row.turn_id, host=host.name)
        return
    if await asyncio.to_thread(context.ledger.accounting.amend, row.turn_id, row.attempt, usage):
        log.info("late usage booked", turn_id=row.turn_id, attempt=row.attempt, host=host.name)
        if orphaned:
            context.metrics.orphan_ended()


async def _read_usage(context: WorkerContext, host: TurnHost, spool_id: str, row: SpoolRow) -> tuple[Usage, bool]:
    """Return an attempt's usage, as far as its host has it, and whether its lease ended the agent."""
    if row.request is None:
        raise InvalidRequest("only a newer runturn can read it: upgrade this worker", field="request")
    adapter, spool = context.registry.get(row.agent), host.spool(spool_id, row.seal)
    request = row.request if row.workspace is None else row.request.working_in(row.workspace)
    command = adapter.build(request, Session(row.session_id or "", row.resume))
    state, end, reason = await _replay(adapter, host.host, spool, resumed=row.resume)
    judged = await observe(adapter, state, end, command, host.host, spool)
    return judged.usage, reason == "lease"


async def _replay(adapter: Adapter, host: Host, spool: Spool, *, resumed: bool) -> tuple[TurnState, Exit, str]:
    """Fold what an agent printed. Attaching terminates what a killed supervisor left running."""
    parser, state = adapter.parser(), TurnState(resumed=resumed)
    async with Follower(host, spool, lease=_NOT_HELD, patience=_ONE_TRY) as turn:
        try:
            async for batch in turn:
                fold(parser, state, [line for line in batch.lines if line])
                await asyncio.sleep(0)  # there may be millions of lines, and others share the event loop
        except LineTooLong:  # the session files may have the rest
            return state, Exit(None), ""
    return (state, Exit(turn.exit.code), turn.exit.reason) if turn.exit else (state, Exit(None), "")


def _resumed(ledger: Ledger, row: SpoolRow) -> bool:
    """Return whether an agent may have continued the session since: its part would be taken for this attempt's.

    Call this after reading the files: a session is entered before the agent starts.
    """
    session = ledger.sessions.find(row.session_id) if row.session_id else None
    if session is None:
        return False
    turn = ledger.reports.turn(row.turn_id)
    if turn.attempts > row.attempt and turn.session_id == row.session_id:
        return True
    left_at = max(row.ended_at or 0.0, turn.settled_at or 0.0)  # a turn leaves its sessions when it is settled
    return session.locked_by not in (None, row.turn_id) or session.updated_at > left_at

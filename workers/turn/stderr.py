"""Keeps agents' stderr for their transcripts."""

from __future__ import annotations

import asyncio

import structlog

from ops.ledger import Attempt, Claim
from remote.errors import HostError
from workers.context import WorkerContext
from workers.ledger_calls import LedgerCalls
from workers.turn.attempt import AttemptRun

_BYTES = 1_048_576  # kept from the end
# Part of a secret would not be recognised as one, so more is read than is kept. An agent's whole environment is
# shorter than this margin.
_MARGIN_BYTES = 131_072
_READ_S = 10.0
_CUT = "[earlier output omitted]\n"

log = structlog.get_logger(__name__)


async def keep_stderr(
    context: WorkerContext, claim: Claim, attempt: Attempt, run: AttemptRun, ledger_call: LedgerCalls
) -> None:
    """Read stderr of a finished attempt from its host, and store it without secrets.

    If the host does not answer now, stderr is lost: the turn does not wait. Raises WorkerStopping, StaleClaim.
    """
    if context.archive is None:
        return
    try:
        async with asyncio.timeout(_READ_S):
            written = await run.stderr(_BYTES + _MARGIN_BYTES)
    except (HostError, TimeoutError) as fault:
        log.warning("stderr is missing from a transcript", error=str(fault) or "timed out")
        return
    if written:
        redacted = await asyncio.to_thread(run.redacted, written)  # a megabyte takes a tenth of a second
        text = kept(redacted, cut=len(written) >= _BYTES + _MARGIN_BYTES)
        await ledger_call(
            context.ledger.transcripts.keep_stderr, claim, attempt.attempt, text.encode(errors="replace")
        )


def kept(redacted: str, *, cut: bool) -> str:
    """Return the part of stderr to keep; `cut`: there was more than was read."""
    if not cut and len(redacted) <= _BYTES:
        return redacted
    start = max(_MARGIN_BYTES if cut else 0, len(redacted) - _BYTES)
    return _CUT + redacted[start:]

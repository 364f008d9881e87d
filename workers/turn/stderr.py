"""Keeps what agents write to stderr, for their transcripts."""

from __future__ import annotations

import asyncio

import structlog

from ops.ledger import Attempt, Claim
from remote.errors import HostError
from workers.context import WorkerContext
from workers.ledger_calls import LedgerCalls
from workers.turn.attempt import AttemptRun

_BYTES = 1_048_576  # the end of it is kept
# What was cut off in the middle of a secret would not be known for one: so more is read than is kept. An agent's
# whole environment is shorter.
_MARGIN_BYTES = 131_072
_READ_S = 10.0
_CUT = "[what came before was left out]\n"

log = structlog.get_logger(__name__)


async def keep_stderr(
    context: WorkerContext, claim: Claim, attempt: Attempt, run: AttemptRun, ledger_call: LedgerCalls
) -> None:
    """Read it from the host of an attempt that is over, and store it without secrets. Raises Detached, StaleClaim.

    A host that does not answer now has it lost: its turn is not kept waiting.
    """
    if context.archive is None:
        return
    try:
        async with asyncio.timeout(_READ_S):
            written = await run.stderr(_BYTES + _MARGIN_BYTES)
    except (HostError, TimeoutError) as fault:
        log.warning("stderr is missing in a transcript", error=str(fault) or "it took too long")
        return
    if written:
        redacted = await asyncio.to_thread(run.redacted, written)  # a megabyte takes it a tenth of a second
        text = kept(redacted, cut=len(written) >= _BYTES + _MARGIN_BYTES)
        await ledger_call(
            context.ledger.transcripts.keep_stderr, claim, attempt.attempt, text.encode(errors="replace")
        )


def kept(redacted: str, *, cut: bool) -> str:
    """What is kept of stderr; `cut`: it was longer than what was read."""
    if not cut and len(redacted) <= _BYTES:
        return redacted
    start = max(_MARGIN_BYTES if cut else 0, len(redacted) - _BYTES)
    return _CUT + redacted[start:]

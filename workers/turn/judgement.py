"""What to make of an attempt that has ended: the adapter's judgement, the host's part, and the exact usage."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from adapters import errors
from adapters.command import Command, SessionFiles
from adapters.contract import Adapter, Exit, Judgement
from adapters.errors import Retry, TurnError
from adapters.turn_state import TurnState
from remote.errors import HostError
from remote.host import Host
from remote.host_queries import free_bytes, read_session_files
from remote.spool import Spool
from workers.agents.output_validation import OutputValidator
from workers.hosts.errors import tolerant
from workers.turn.attempt import AttemptRun, Ended

_MOST_READS = 50  # of session files, each of which names the next ones
_ENOUGH_BYTES = 65_536  # free under the spool, below which an agent cannot be expected to print

log = structlog.get_logger(__name__)


class UsageOwed(Judgement):
    """One whose usage is yet to be read from the session files, which the spool has to stay for."""


async def judge(
    adapter: Adapter,
    run: AttemptRun,
    ended: Ended,
    command: Command,
    host: Host,
    spool: Spool,
    outputs: OutputValidator,
) -> Judgement:
    """Judge an attempt; where the stream does not tell its usage, read the session files on the host.

    A success whose session files cannot be had now is `UsageOwed`. Raises HostError when an agent that has failed,
    or was killed, has told no bill, and they cannot be had either.
    """
    stderr = await tolerant(run.stderr_tail(), b"")
    end = Exit(ended.exit.code, run.redacted(stderr))
    try:
        judged = await observe(adapter, run.state, end, command, host, spool)
    except HostError as fault:
        judged = _owing(adapter.judgement(run.state, end), fault)
    why = _why(judged.error or await _output_error(run, outputs), ended, end)
    if isinstance(why, errors.PortExit | errors.HostLost) and await _disk_is_full(host, spool):
        why = errors.SpoolUnwritable(f"host {host.name}: the disk of {spool.root} is full; free some space there")
    if isinstance(why, errors.AgentNotFound):
        why = errors.AgentNotFound(f"host {host.name}: {why.message}; see runturn doctor --host {host.name}")
    return replace(judged, error=why)


def _owing(judged: Judgement, fault: HostError) -> Judgement:
    """What to make of a bill that cannot be read now: a success is not bought again for want of it."""
    if judged.error is not None:
        raise fault
    log.warning("the session files of a success could not be read; they are read later", error=str(fault))
    usage = replace(judged.usage, complete=False)
    return UsageOwed(None, usage, read_session_files=True, next_files=judged.next_files)


async def _output_error(run: AttemptRun, outputs: OutputValidator) -> TurnError | None:
    """What is wrong with the structured output of an agent that reports success and gives one."""
    schema, report = run.output_schema, run.state.report
    if schema is None or report is None or report.structured_output is None:
        return None
    fault = await outputs.fault(schema, report.structured_output)
    if fault is None:
        return None
    return errors.StructuredOutputMissing(f"the structured output is not as output_schema wants it: {fault}")


async def observe(
    adapter: Adapter, state: TurnState, end: Exit, command: Command, host: Host, spool: Spool
) -> Judgement:
    """The adapter's judgement, with the usage of the session files where the stream does not tell it.

    Raises HostUnreachable, and SpawnRefused for a spool that was removed meanwhile, unless the agent has told its
    bill itself: that one stands then.
    """
    judged = adapter.judgement(state, end)
    if not judged.read_session_files or command.session_files is None:
        return judged
    try:
        records = await _records(judged, command.session_files, host, spool)
        exact = await asyncio.to_thread(adapter.session_usage, records, state)  # they may be megabytes
    except TurnError as fault:  # the adapter's own: what the stream has told is kept
        return replace(judged, error=judged.error or fault)
    except HostError as fault:
        if not judged.usage.source.observed:
            raise
        # The agent has told its bill: a turn with a result does not wait for what may be missing there.
        log.warning("the session files could not be read", host=host.name, error=str(fault))
        return replace(judged, usage=replace(judged.usage, complete=False))
    return replace(judged, usage=judged.usage_with(exact))


async def _records(judged: Judgement, named: SessionFiles, host: Host, spool: Spool) -> list[bytes]:
    """What the attempt added to its session files; one may name others."""
    following = judged.next_files or (lambda lines: None if lines else named)
    lines: list[bytes] = []
    read: SessionFiles | None = None
    for _ in range(_MOST_READS):
        files = await asyncio.to_thread(following, lines)
        if files is None or files == read:
            break
        lines += (await read_session_files(host, spool, files)).splitlines()
        read = files
    return lines


async def _disk_is_full(host: Host, spool: Spool) -> bool:
    """Whether an agent that ended badly may have had no room for its output: trying again would not help."""
    return await tolerant(free_bytes(host, spool.root), _ENOUGH_BYTES) < _ENOUGH_BYTES


def _why(error: TurnError | None, ended: Ended, end: Exit) -> TurnError | None:
    """The reason of a failure: ours if we ended the agent, else what its host and the agent say."""
    if error is None or ended.asked is not None:
        return error and ended.asked
    if ended.exit.reason == "lease":
        return errors.HostLost("no worker followed the turn for as long as its lease; the agent was ended")
    if ended.exit.reason == "lost":
        return errors.HostLost("the turn's supervisor on the host was killed; the agent was ended")
    if end.signalled and isinstance(error, errors.TurnCancelled):
        # Nobody here asked for it: out of memory, a reboot, somebody's kill. The turn must not be lost by that.
        return errors.TurnCancelled(error.message, retry=Retry.BACKOFF)
    return error

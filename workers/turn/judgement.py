"""Judges a finished attempt: the adapter's judgement, the host's part in it, and the exact usage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import structlog

from adapters import errors
from adapters.command import Command, SessionFiles
from adapters.contract import Adapter, Exit, Judgement
from adapters.errors import Retry, TurnError
from adapters.turn_state import TurnState
from adapters.usage import limited
from remote.errors import HostError, SpawnRefused
from remote.host import Host
from remote.host_queries import free_bytes, read_session_files, read_whole_session_files
from remote.spool import Spool
from workers.agents.output_validation import OutputValidator
from workers.hosts.errors import tolerant
from workers.turn.attempt import AttemptRun, Ended

_MOST_READS = 50  # of session files, each of which may name more
_ENOUGH_BYTES = 65_536  # free under the spool; with less, an agent may be unable to print

ReadFiles = Callable[[SessionFiles], Awaitable[bytes]]

log = structlog.get_logger(__name__)


class UsageOwed(Judgement):
    """A judgement whose usage must still be read from the session files; the spool stays until then."""


async def judge(
    adapter: Adapter,
    run: AttemptRun,
    ended: Ended,
    command: Command,
    host: Host,
    spool: Spool,
    outputs: OutputValidator,
) -> Judgement:
    """Judge an attempt; if the stream does not report its usage, read the session files on the host.

    A success whose session files cannot be read now is `UsageOwed`. Raise HostError if a failed or killed agent
    reported no usage and its session files cannot be read either.
    """
    stderr = await tolerant(run.stderr_tail(), b"")
    end = Exit(ended.exit.code, run.redacted(stderr))
    try:
        judged = await observe(adapter, run.state, end, command, host, spool)
    except HostError as fault:
        judged = _owing(adapter.judgement(run.state, end), fault)
    why = _why(judged.error or await _output_error(run, outputs), ended, end, run.exceeded)
    if isinstance(why, errors.PortExit | errors.HostLost) and await _disk_is_full(host, spool):
        why = errors.SpoolUnwritable(f"host {host.name}: the disk of {spool.root} is full; free some space")
    if isinstance(why, errors.AgentNotFound):
        why = errors.AgentNotFound(f"host {host.name}: {why.message}; see runturn doctor --host {host.name}")
    return replace(judged, error=why)


def _owing(judged: Judgement, fault: HostError) -> Judgement:
    """Judge an attempt whose usage cannot be read now: a success is not paid for twice because of it."""
    if judged.error is not None:
        raise fault
    log.warning(
        "session files of a successful attempt could not be read; they will be read later", error=str(fault)
    )
    usage = replace(limited(judged.usage), complete=False)
    return UsageOwed(None, usage, read_session_files=True, next_files=judged.next_files)


async def _output_error(run: AttemptRun, outputs: OutputValidator) -> TurnError | None:
    """Validate the structured output, if any, of an agent that reports success."""
    schema, report = run.output_schema, run.state.report
    if schema is None or report is None or report.structured_output is None:
        return None
    fault = await outputs.fault(schema, report.structured_output)
    if fault is None:
        return None
    return errors.StructuredOutputMissing(f"the structured output does not match output_schema: {fault}")


async def observe(
    adapter: Adapter,
    state: TurnState,
    end: Exit,
    command: Command,
    host: Host,
    spool: Spool,
    read_files: ReadFiles | None = None,
) -> Judgement:
    """Return the adapter's judgement, with usage from the session files if the stream does not report it.

    `read_files` returns the attempt's lines in session files; None: those that its spool says it has added.
    Raise HostUnreachable, or SpawnRefused for a resumed session without the spool that tells which part of it is
    the attempt's, unless the agent reported its usage itself: that usage then stands.
    """
    judged = await _observed(adapter, state, end, command, host, spool, read_files)
    return replace(judged, usage=limited(judged.usage))


async def _observed(
    adapter: Adapter,
    state: TurnState,
    end: Exit,
    command: Command,
    host: Host,
    spool: Spool,
    read_files: ReadFiles | None,
) -> Judgement:
    judged = adapter.judgement(state, end)
    if not judged.read_session_files:
        return judged
    try:
        read = read_files or partial(_read, host, spool, command, began=not state.resumed)
        records = await _records(judged, command.session_files, read) if command.session_files else []
        judged = await asyncio.to_thread(_with_answer, judged, state, records)
        exact = await asyncio.to_thread(adapter.session_usage, records, state)  # they may be megabytes
    except TurnError as fault:  # the adapter's own: keep what the stream reported
        return replace(judged, error=judged.error or fault)
    except HostError as fault:
        if not judged.usage.source.observed:
            raise
        # The agent reported its usage: a turn with a result does not wait for what these files may add.
        log.warning("session files could not be read", host=host.name, error=str(fault))
        return replace(judged, usage=replace(judged.usage, complete=False))
    return replace(judged, usage=judged.usage_with(exact))


def _with_answer(judged: Judgement, state: TurnState, records: list[bytes]) -> Judgement:
    """Judge an agent as successful that finished its answer, but could not print it. Raises AgentFailed."""
    answer = judged.final_answer(records) if judged.final_answer is not None else None
    if answer is None:
        return judged
    log.warning("the agent's output lacks its end; the session files have its answer", error=str(judged.error))
    state.answered(answer)
    return replace(judged, error=None)


async def _records(judged: Judgement, named: SessionFiles, read_files: ReadFiles) -> list[bytes]:
    """Return the lines that the attempt added to its session files; one may name others."""
    following = judged.next_files or (lambda lines: None if lines else named)
    lines: list[bytes] = []
    read: SessionFiles | None = None
    for _ in range(_MOST_READS):
        files = await asyncio.to_thread(following, lines)
        if files is None or files == read:
            break
        lines += (await read_files(files)).splitlines()
        read = files
    return lines


async def _read(host: Host, spool: Spool, command: Command, files: SessionFiles, *, began: bool) -> bytes:
    """Return the attempt's part of session files; if it `began` the session and its spool is missing, all."""
    try:
        return await read_session_files(host, spool, files)
    except SpawnRefused as refusal:
        if refusal.code != "spool_missing" or not began:
            raise
    log.warning("a spool is missing; its turn's session files are read from their beginning", host=host.name)
    return await read_whole_session_files(host, command, files)


async def _disk_is_full(host: Host, spool: Spool) -> bool:
    """Return whether a failed agent may have had no room for its output; a retry would not help then."""
    return await tolerant(free_bytes(host, spool.root), _ENOUGH_BYTES) < _ENOUGH_BYTES


def _why(error: TurnError | None, ended: Ended, end: Exit, exceeded: TurnError | None) -> TurnError | None:
    """Return the cause of a failure: ours if we terminated the agent, else what its host and the agent report."""
    if error is None or ended.asked is not None:
        return error and ended.asked
    if exceeded is not None:
        return exceeded
    if ended.exit.reason == "lease":
        return errors.HostLost("no worker followed the turn for the length of its lease; the agent was terminated")
    if ended.exit.reason == "lost":
        return errors.HostLost(
            "the turn's supervisor on the host was killed, or its spool was changed; the agent was terminated"
        )
    if end.signalled and isinstance(error, errors.TurnCancelled):
        # Killed by something else: out of memory, a reboot, a manual kill. The turn must not be lost to that.
        return error.with_retry(Retry.BACKOFF)
    return error

"""Judges Codex turns. The rules were measured on Codex 0.169.0.

It exits with 0 after `turn.completed`, with 1 after any failure, with or without an event, and with 2 for unknown
arguments. While it cannot reach its API, it does not exit at all.
"""

from __future__ import annotations

from adapters import errors
from adapters.codex.faults import fault
from adapters.codex.rollout import next_files
from adapters.contract import Exit, Judgement
from adapters.errors import TurnError
from adapters.toolkit.error_mapping import exit_after_success, exit_error, without_result
from adapters.turn_state import TurnState
from adapters.usage import Usage, UsageSource

_NO_SUCH_THREAD = "no rollout found for thread"


def judge(state: TurnState, end: Exit) -> Judgement:
    """Judge a finished attempt. Usage by model is only in the rollouts, not in the stream."""
    return Judgement(
        _error(state, end), _usage(state), read_session_files=state.started, next_files=next_files(state)
    )


def _usage(state: TurnState) -> Usage:
    """Return the stream's usage: the thread's count, which is the turn's in a new thread, without subagents."""
    report = state.report
    if report is not None and not report.is_error and not state.resumed:
        return Usage(report.by_model, UsageSource.STREAM if report.by_model else UsageSource.NONE, complete=False)
    refused = report is not None and report.is_error and not (state.text or state.tools or state.answer_lost)
    silent = not (state.started or state.text or state.tools or state.malformed)
    return Usage({}, UsageSource.NONE, complete=refused or silent)


def _error(state: TurnState, end: Exit) -> TurnError | None:
    report = state.report
    if report is None:
        return _without_report(state, end)
    if report.is_error:
        return fault(report.text)
    if state.expects_output and report.structured_output is None:
        return errors.StructuredOutputMissing()
    return exit_after_success(state, end, _because(end))


def _without_report(state: TurnState, end: Exit) -> TurnError:
    if _NO_SUCH_THREAD in end.stderr and not state.started:
        return errors.SessionNotFound(_complaint(end.stderr))
    if end.code == 0:
        return without_result(state, _because(end))
    return exit_error(state, end, _because(end))


def _because(end: Exit) -> str:
    line = _complaint(end.stderr)
    return f": {line}" if line else ""


def _complaint(stderr: str) -> str:
    """Return the line of stderr that explains the failure; a stack trace may follow it."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    complaints = [line for line in lines if line[:6].lower() == "error:"]
    return (complaints or lines or [""])[-1][:500]

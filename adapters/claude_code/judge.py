"""Judges Claude Code turns.

The rules were measured on Claude Code 2.1.197 and 2.1.330 against an API with a known bill; `known` lists what
older versions never report. A reported success is a failure only if the output proves it; missing fields prove
nothing. The exit code alone says little: it is 0 for a turn interrupted in mid-stream, a truncated answer, or a
schema never filled.

To recognize another failure: use `_CATEGORIES` for categories of API errors, `_SUBTYPES` for subtypes of the
result, `adapters.toolkit.error_mapping` for HTTP statuses.
"""

from __future__ import annotations

import re

from adapters import errors
from adapters.claude_code.account import misses, told_usage
from adapters.claude_code.session_files import final_answer, subagent_files
from adapters.claude_code.soft_stop import STOPPED
from adapters.contract import Exit, Judgement
from adapters.errors import Retry, TurnError
from adapters.events import Report
from adapters.toolkit.error_mapping import (
    exit_after_success,
    exit_error,
    kind_of_status,
    not_understood,
    without_result,
)
from adapters.turn_state import TurnState

_CATEGORIES: dict[str, type[TurnError]] = {
    "authentication_failed": errors.AuthenticationFailed,
    "oauth_org_not_allowed": errors.AuthenticationFailed,
    "billing_error": errors.OutOfTokens,
    "rate_limit": errors.RateLimited,
    "overloaded": errors.Overloaded,
    "invalid_request": errors.InvalidRequest,
    "model_not_found": errors.InvalidRequest,
    "max_output_tokens": errors.AgentFailed,
}
_SUBTYPES: dict[str, type[TurnError]] = {
    "error_max_turns": errors.AgentFailed,
    "error_max_budget_usd": errors.BudgetExceeded,
    "error_max_structured_output_retries": errors.StructuredOutputMissing,
}
_STATUS = re.compile(r"API Error: ([45]\d\d)\b")
_OVERLOADED = "API Error: Overloaded"  # the API reported it inside a stream: no status, category `unknown`
_UNPRINTED = "could not save all of the output"  # the disk of the spool was full for a while (2.1.330)
# The CLI's messages about sessions, mostly on stderr only and before any event. A session "in use" may be dead, so
# waiting is no remedy: the next attempt uses another session.
_REFUSALS: tuple[tuple[str, type[TurnError], Retry], ...] = (
    ("No conversation found with session ID", errors.SessionNotFound, Retry.NEVER),
    ("is already in use", errors.SessionInUse, Retry.BACKOFF),
)


def judge(state: TurnState, end: Exit) -> Judgement:
    """Judge a finished attempt."""
    error, usage = _error(state, end), told_usage(state)
    if not usage.source.observed:
        answer = final_answer if state.report is None and _may_have_answered(error, state) else None
        return Judgement(error, usage, read_session_files=state.started, final_answer=answer)
    if not _ended_as_reported(state, end):
        return Judgement(error, usage, read_session_files=True)
    if not state.delegated or not state.session_id:
        return Judgement(error, usage)
    # The output does not report a subagent's answer that broke off and was requested again.
    files = subagent_files(state.session_id)
    return Judgement(error, usage, read_session_files=True, next_files=lambda lines: None if lines else files)


def _ended_as_reported(state: TurnState, end: Exit) -> bool:
    """Return True if the agent exited as it does after its report, which is then its last word.

    Otherwise, it was killed after the report, or something else printed that line: there may be more to pay for.
    """
    failed = state.report is not None and (state.report.is_error or state.report.subtype != "success")
    return end.code == 0 or (end.code == 1 and failed)


def _may_have_answered(error: TurnError | None, state: TurnState) -> bool:
    """Return True if the output may merely lack its end: Claude Code continues although it cannot print."""
    return isinstance(error, errors.PortExit | errors.AgentNotUnderstood) and not state.expects_output


def _error(state: TurnState, end: Exit) -> TurnError | None:
    report = state.report
    if report is None:
        return _without_report(state, end)
    if report.is_error or report.subtype != "success":
        return _reported(report, state)
    if (unfinished := _unfinished(report, state)) is not None:
        return unfinished
    if state.expects_output and report.structured_output is None:
        return errors.StructuredOutputMissing()
    if end.code == 1 and _UNPRINTED in end.stderr:
        return None  # the report was printed after all
    return exit_after_success(state, end, _because(end))


def _unfinished(report: Report, state: TurnState) -> TurnError | None:
    """Return the error of a reported success that the output disproves; None if it does not."""
    if state.interrupted and report.num_turns == 0 and report.stop_reason is None:
        return errors.TurnCancelled("a hook blocked the prompt")
    if report.terminal_reason == STOPPED and report.structured_output is None:
        return errors.TurnCancelled("a hook stopped the turn before the agent finished")
    if report.cut_short or _cut_after_tool(report, state):
        return errors.ApiUnreachable("the model's answer was cut short: its stream ended mid-message")
    if report.stop_reason == "refusal":
        return errors.AgentFailed(f"the model refused: {report.text or 'no reason given'}")
    return None


def _cut_after_tool(report: Report, state: TurnState) -> bool:
    """Return True if the last answer was cut although the stop reason is that of the previous message.

    The stop reason also stays `tool_use` if the last call filled in the structured output.
    """
    if report.stop_reason != "tool_use" or report.structured_output is not None or report.unread:
        return False
    return misses(report.by_model, state.seen)  # the cut answer is not reported


# -- the agent reported a failure


def _reported(report: Report, state: TurnState) -> TurnError:
    text = report.text or "; ".join(report.errors) or report.subtype
    if report.stop_reason == "refusal":
        return errors.AgentFailed(f"the model refused: {text}")
    if report.subtype == "error_during_execution":
        return _broken_off(report, text)
    if report.subtype != "success":
        return _other_end(report, text, state)
    kind = _api_error_kind(report, state)
    if issubclass(kind, errors.RateLimited | errors.OutOfTokens):
        return _limited(kind, text, state)
    return kind(text)


def _broken_off(report: Report, text: str) -> TurnError:
    if (report.terminal_reason or "").startswith("aborted"):
        return errors.TurnCancelled("the agent was interrupted")
    for phrase, kind, retry in _REFUSALS:
        if phrase in text:
            return kind(text, retry=retry)
    return errors.AgentFailed(text)


def _other_end(report: Report, text: str, state: TurnState) -> TurnError:
    """Return the error for a subtype other than `success`."""
    if report.subtype in _SUBTYPES:
        return _SUBTYPES[report.subtype](text)
    if report.is_error or report.subtype.startswith("error"):
        return errors.AgentFailed(text)
    what = f"its result has the subtype {report.subtype[:100]}" if report.subtype else "its result has no subtype"
    return not_understood(state, what)


def _api_error_kind(report: Report, state: TurnState) -> type[TurnError]:
    category = state.api_failure.category if state.api_failure else None
    if category in _CATEGORIES:
        return _CATEGORIES[category]
    status = report.api_status or _status_in(report.text)
    if status is not None:
        return kind_of_status(status)
    if report.text.startswith(_OVERLOADED):
        return errors.Overloaded
    return errors.ApiUnreachable if category in ("server_error", "unknown") else errors.AgentFailed


def _status_in(text: str) -> int | None:
    """Return the HTTP status in the text, the only place where 2.1.69 and older report it."""
    found = _STATUS.match(text)
    return int(found[1]) if found else None


def _limited(kind: type[TurnError], text: str, state: TurnState) -> TurnError:
    limit = state.rate_limit
    if limit is None or limit.status != "rejected" or limit.resets_at is None:
        return kind(text)
    return kind(text, retry=Retry.BACKOFF, retry_at=limit.resets_at)


# -- the agent exited without a report


def _without_report(state: TurnState, end: Exit) -> TurnError:
    for phrase, kind, retry in _REFUSALS:
        if phrase in end.stderr and not state.started:
            return kind(_last_line(end.stderr), retry=retry)
    if end.code == 0 and state.interrupted:
        return errors.TurnCancelled("the agent was interrupted")
    if end.code == 0:
        return without_result(state, _because(end))
    return exit_error(state, end, _because(end))


def _because(end: Exit) -> str:
    line = _last_line(end.stderr)
    if "cannot be used with root" in line:
        return f": {line}. Run the worker as another user, or set IS_SANDBOX=1 in a container"
    return f": {line}" if line else ""


def _last_line(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""

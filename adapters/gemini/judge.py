"""Judges Gemini CLI turns and reads the usage that they report.

The rules were measured on Gemini CLI 0.61.0 and compared with 0.41.0, 0.45.2 and 0.52.0. Its exit code is the
HTTP status of a failure, cut to eight bits, or one of its own; it is also 0 after SIGINT or SIGTERM and for an
answer that was refused. Success is a result that says so without an error before it.

To recognize another failure: use `_PHRASES` for texts of the result or stderr, `_EXITS` for its own exit codes,
`adapters.toolkit.error_mapping` for HTTP statuses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from adapters import errors
from adapters.contract import Exit, Judgement
from adapters.errors import Retry, TurnError
from adapters.events import Report
from adapters.gemini.report import ERROR, SUCCESS
from adapters.prices import PriceTable
from adapters.toolkit.error_mapping import (
    exit_after_success,
    exit_error,
    kind_of_status,
    not_understood,
    without_result,
)
from adapters.turn_state import TurnState
from adapters.usage import ModelUsage, Usage, UsageSource

_STATUS_OF_EXIT = {status % 256: status for status in (400, 401, 402, 403, 413, 429, 500, 502, 503, 504)}
# Its own texts that replace the API's, and the API's texts that distinguish failures with the same status.
_PHRASES: tuple[tuple[str, type[TurnError]], ...] = (
    ("API key not valid", errors.AuthenticationFailed),
    ("API_KEY_INVALID", errors.AuthenticationFailed),
    ("API key expired", errors.AuthenticationFailed),
    ("exhausted your daily quota", errors.OutOfTokens),
    ("exhausted your capacity", errors.OutOfTokens),
    ("Resource has been exhausted", errors.RateLimited),
    ("is not found", errors.InvalidRequest),
    ("fetch failed", errors.ApiUnreachable),
    ("returned an empty response", errors.ApiUnreachable),
    ("no final response text", errors.ApiUnreachable),
    ("Model stream ended", errors.ApiUnreachable),
    ("[API Error: terminated]", errors.ApiUnreachable),
    ("Reached max session turns", errors.AgentFailed),
    ("Operation cancelled", errors.TurnCancelled),
)
_EXITS: dict[int, type[TurnError]] = {
    41: errors.AuthenticationFailed,
    42: errors.InvalidRequest,  # invalid arguments or prompt
    44: errors.AgentFailed,  # sandbox failure
    52: errors.AgentFailed,  # invalid settings
    55: errors.InvalidWorkspace,  # untrusted workspace
}
# Its messages about sessions, on stderr only and before any event. An existing session may lack any answer, and
# then it cannot be resumed, either: the next attempt uses another session.
_REFUSALS: tuple[tuple[str, type[TurnError], Retry], ...] = (
    ("Error resuming session", errors.SessionNotFound, Retry.NEVER),
    ("already exists", errors.SessionInUse, Retry.BACKOFF),
)
_API_ERROR = "[API Error:"
# On stderr. Measured: 0.45.2 and 0.52.0 report an unknown error and exit with 1 if the API limits the rate, is
# overloaded or does not have the model; 0.41.0 and 0.61.0 name the failure, but not always its status. All four
# write the error and its status to stderr.
_REFUSAL = "Error when talking to Gemini API"
_ERROR = re.compile(r"\b[A-Za-z]*Error: (.+)")
_STATUS = re.compile(r"^\s*(?:cause: \{ )?(?:code|status): ([45]\d\d)\b", re.MULTILINE)
_LONGEST = 300  # characters of a refusal's message
_LOOP = "Loop detected"  # it broke off an answer and left it out of its report
# Irrelevant lines on stderr.
_NOISE = ("YOLO mode", "Warning:", "Ripgrep is not", "[STARTUP]", "Loaded cached credentials")


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The API's answer to the last request."""

    message: str  # blank: unreadable
    status: int | None  # HTTP


def judge(state: TurnState, end: Exit, prices: PriceTable) -> Judgement:
    """Judge a finished attempt."""
    error = _error(state, end)
    usage = told_usage(state, end, prices)
    # Even its own report may lack an answer that broke off, or confuse kinds of tokens.
    return Judgement(error, usage, read_session_files=state.started or state.report is not None)


def told_usage(state: TurnState, end: Exit, prices: PriceTable) -> Usage:
    """Return the usage that the agent's output reports. `session_files` describes what it lacks."""
    report = state.report
    if report is None:
        return state.estimate
    by_model = {
        model: ModelUsage(used.tokens, prices.cost_usd(model, used.tokens))
        for model, used in report.by_model.items()
    }
    # If a long prompt would have another price, the cost is known only from the single requests.
    unclear = {
        model for model, used in by_model.items() if used.cost_usd != prices.request_cost_usd(model, used.tokens)
    }
    by_model |= {model: replace(by_model[model], cost_usd=None) for model in unclear}
    refused = _status_of(report, end) is not None  # an HTTP error status means no answer
    broke_off = isinstance(_error(state, end), errors.ApiUnreachable) and not refused
    known = not report.unread and report.subtype in (SUCCESS, ERROR)
    whole = known and not broke_off and not any(_LOOP in text for text in report.errors)
    # Without a readable report, only the session files remain.
    source = UsageSource.NONE if report.unread and not by_model else UsageSource.RESULT
    return Usage(by_model, source, complete=whole)


def _error(state: TurnState, end: Exit) -> TurnError | None:
    report = state.report
    if report is None:
        return _without_report(state, end)
    if report.is_error:
        return _reported(report, end)
    if report.subtype != SUCCESS:
        what = (
            f"its result has the status {report.subtype[:100]}" if report.subtype else "its result has no status"
        )
        return not_understood(state, what)
    return exit_after_success(state, end, _because(end))


# -- the agent reported a failure


def _reported(report: Report, end: Exit) -> TurnError:
    text = "; ".join(report.errors) or report.subtype
    refusal = _refusal(report, end)
    if refusal.message not in text:
        text = f"{text}: {refusal.message}"
    for phrase, kind in _PHRASES:
        if phrase in text:
            return kind(text)
    status = _status_of(report, end)
    if status is None:
        return errors.AgentFailed(text)
    return kind_of_status(status)(text)


def _status_of(report: Report, end: Exit) -> int | None:
    """Return the HTTP status of the API's refusal, from any source."""
    return report.api_status or _STATUS_OF_EXIT.get(end.code or 0) or _refusal(report, end).status


def _refusal(report: Report, end: Exit) -> _Refusal:
    """Return the API's last refusal, as far as stderr has it, if the report names the API as the cause."""
    of_api = any(_API_ERROR in text for text in report.errors)
    _, _, said = (end.stderr if of_api else "").rpartition(_REFUSAL)
    first, _, rest = said.partition("\n")
    message, status = _ERROR.search(first), _STATUS.search(rest)
    return _Refusal(message[1][:_LONGEST] if message else "", int(status[1]) if status else None)


# -- the agent exited without a report


def _without_report(state: TurnState, end: Exit) -> TurnError:
    for phrase, kind, retry in _REFUSALS:
        if phrase in end.stderr and not state.started:
            return kind(_line_with(phrase, end.stderr), retry=retry)
    if end.code in _EXITS and not state.started:
        return _EXITS[end.code](f"the agent exited with status {end.code}" + _because(end))
    if end.code == 0 and state.started and not state.answering and not state.malformed:
        # During a tool call or while waiting for the model, it exits like this on SIGINT and SIGTERM, never by
        # itself. A signal that we did not send must not lose the turn. An unknown version may have another reason,
        # so this is not `turn_cancelled`, which is retried at any price.
        amid = "during a tool call" if state.tools else "before its model answered"
        return errors.PortExit(f"the agent exited {amid}, as it does on SIGINT and SIGTERM (exit status 0)")
    if end.code == 0:  # its answer may have been complete
        return without_result(state, _because(end))
    return exit_error(state, end, _because(end))


def _because(end: Exit) -> str:
    """Return the first relevant line of stderr; advice, usage help or a stack trace may follow."""
    lines = (line.strip() for line in end.stderr.splitlines())
    said = next((line for line in lines if line and not line.startswith(_NOISE)), "")
    return f": {said[:500]}" if said else ""


def _line_with(phrase: str, stderr: str) -> str:
    return next(line.strip() for line in stderr.splitlines() if phrase in line)[:500]

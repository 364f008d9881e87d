"""Whether a Claude Code turn succeeded, and whether its own account of the tokens can be trusted.

The rules were measured on Claude Code 2.1.197 and 2.1.330 against an API whose bill was known. The exit code alone
says little: it is 0 for a turn interrupted in mid-stream, for an answer that was cut, for a schema never filled.

To read another failure: `_CATEGORIES` for a category of the API's errors, `_SUBTYPES` for a subtype of the
result, `adapters.faults` for an HTTP status.
"""

from __future__ import annotations

from dataclasses import replace

from adapters import errors
from adapters.claude_code.session_files import subagent_files
from adapters.claude_code.soft_stop import STOPPED
from adapters.contract import Exit, Judgement
from adapters.errors import Retry, TurnError
from adapters.events import Report
from adapters.faults import exit_error, kind_of_status
from adapters.fold import TurnState
from adapters.usage import Usage, UsageSource

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
# What the CLI says of sessions, mostly on stderr alone and before any event. One "in use" may be dead, and then no
# waiting helps: the next attempt takes another session.
_REFUSALS: tuple[tuple[str, type[TurnError], Retry], ...] = (
    ("No conversation found with session ID", errors.SessionNotFound, Retry.NEVER),
    ("is already in use", errors.SessionInUse, Retry.BACKOFF),
)


def judge(state: TurnState, end: Exit) -> Judgement:
    """Judge a turn that has ended."""
    error, usage = _error(state, end), told_usage(state)
    if not usage.source.observed:
        return Judgement(error, usage, read_session_files=state.started)
    if not state.delegated or not state.session_id:
        return Judgement(error, usage)
    # Of a subagent's answer that broke off and was asked for again, nothing is told.
    files = subagent_files(state.session_id)
    return Judgement(error, usage, read_session_files=True, next_files=lambda lines: None if lines else files)


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
    return exit_error(state, end, _because(end)) if end.code not in (0, None) else None


def _unfinished(report: Report, state: TurnState) -> TurnError | None:
    """Why a reported success is none."""
    if state.interrupted and report.num_turns == 0 and report.stop_reason is None:
        return errors.TurnCancelled("a hook has kept the prompt from the agent")
    if report.terminal_reason == STOPPED and report.structured_output is None:
        return errors.TurnCancelled("a hook ended the turn before the agent was done")
    if _cut_short(report) or _cut_after_tool(report, state):
        return errors.ApiUnreachable("the model's answer was cut short: its stream ended in mid-message")
    if report.stop_reason == "refusal":
        return errors.AgentFailed(f"the model refused: {report.text or 'no reason given'}")
    return None


def _cut_short(report: Report) -> bool:
    """Whether a reported success is the torso of an answer."""
    return report.subtype == "success" and report.stop_reason is None and bool(report.num_turns)


def _cut_after_tool(report: Report, state: TurnState) -> bool:
    """The same, where the stop reason is still that of the message before, whose tools have run.

    It stays `tool_use`, too, where filling in the structured output was the last call.
    """
    if report.stop_reason != "tool_use" or report.structured_output is not None:
        return False
    counted = sum((used.tokens.prompt for used in report.by_model.values()), 0)
    return counted < state.seen_tokens.prompt  # the answer that was cut is not in the account


# -- the agent reported a failure


def _reported(report: Report, state: TurnState) -> TurnError:
    text = report.text or "; ".join(report.errors) or report.subtype
    if report.stop_reason == "refusal":
        return errors.AgentFailed(f"the model refused: {text}")
    if report.subtype == "error_during_execution":
        return _broken_off(report, text)
    if report.subtype != "success":
        return _SUBTYPES.get(report.subtype, errors.AgentFailed)(text)
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


def _api_error_kind(report: Report, state: TurnState) -> type[TurnError]:
    category = state.api_failure.category if state.api_failure else None
    if category in _CATEGORIES:
        return _CATEGORIES[category]
    if report.api_status is not None:
        return kind_of_status(report.api_status)
    return errors.ApiUnreachable if category in ("server_error", "unknown") else errors.AgentFailed


def _limited(kind: type[TurnError], text: str, state: TurnState) -> TurnError:
    limit = state.rate_limit
    if limit is None or limit.status != "rejected" or limit.resets_at is None:
        return kind(text)
    return kind(text, retry=Retry.BACKOFF, retry_at=limit.resets_at)


# -- the agent ended without a word


def _without_report(state: TurnState, end: Exit) -> TurnError:
    for phrase, kind, retry in _REFUSALS:
        if phrase in end.stderr and not state.started:
            return kind(_last_line(end.stderr), retry=retry)
    if end.code == 0 and state.interrupted:
        return errors.TurnCancelled("the agent was interrupted")
    if end.code == 0:
        return errors.AgentFailed("the agent ended without a result" + _because(end))
    return exit_error(state, end, _because(end))


def _because(end: Exit) -> str:
    line = _last_line(end.stderr)
    if "cannot be used with root" in line:
        return f": {line}. Run the worker as another user, or set IS_SANDBOX=1 in a container"
    return f": {line}" if line else ""


def _last_line(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


# -- tokens


def told_usage(state: TurnState) -> Usage:
    """The account that the agent's output gives; what its subagents had to ask for again may be missing."""
    report = state.report
    if report is None:
        return state.estimate
    whole = not state.answer_lost and not _cut_off(report, state)
    reported = Usage(report.by_model, UsageSource.RESULT, complete=whole)
    missed = reported.tokens.prompt < state.seen_tokens.prompt
    if not missed and not (state.answer_lost and state.seen) and all(map(_can_be_trusted, state.reports)):
        return reported
    # An estimate either way: take the account that knows of more.
    return state.estimate if missed else replace(reported, source=UsageSource.STREAM, complete=False)


def _cut_off(report: Report, state: TurnState) -> bool:
    """Whether the API's connection failed for good: of the last answer, some may have been billed unseen."""
    failure = state.api_failure
    return report.is_error and failure is not None and failure.category == "server_error" and not report.api_status


def _can_be_trusted(report: Report) -> bool:
    """`modelUsage` misses messages that were cut or interrupted (2.1.197), or guesses their output (2.1.330).

    It never mends: a process that answers several prompts goes on counting from there.
    """
    return report.terminal_reason != "aborted_streaming" and not report.contradictory and not _cut_short(report)

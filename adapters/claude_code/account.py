"""Token usage reported in Claude Code's output, and how far it can be trusted.

It is complete if neither the output nor the known behaviour of the version indicates additional usage.
"""

from __future__ import annotations

from collections.abc import Mapping

from adapters.claude_code.known import asks_aside, read_version
from adapters.claude_code.report import OWN_TOKENS
from adapters.events import Report
from adapters.turn_state import TurnState
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource

_KNOWN = ("success", "error")  # prefixes of known subtypes
ByModel = Mapping[str, ModelUsage]


def told_usage(state: TurnState) -> Usage:
    """Return the usage that the agent's output reports; it may lack requests that subagents repeated."""
    report = state.report
    if report is None or (report.of_session and state.resumed):
        return state.estimate
    whole = not state.answer_lost and not _cut_off(report, state) and not _is_doubtful(state)
    reported = Usage(report.by_model, UsageSource.RESULT, complete=whole)
    missed = misses(report.by_model, state.seen)
    if not missed and not (state.answer_lost and state.seen) and all(map(_can_be_trusted, state.reports)):
        return reported
    # Both are estimates: use the greater one.
    return Usage(greater(state.estimate.by_model, report.by_model), UsageSource.STREAM, complete=False)


def misses(reported: ByModel, seen: Mapping[str, Tokens]) -> bool:
    """Return True if the reported usage lacks a printed message. Model names may differ between the two."""
    accounted = sum(used.tokens.prompt for used in reported.values())
    printed = sum(tokens.prompt for tokens in seen.values())
    both = reported.keys() & seen.keys()
    return accounted < printed or any(reported[model].tokens.prompt < seen[model].prompt for model in both)


def greater(seen: ByModel, told: ByModel) -> ByModel:
    """Return a lower bound of the usage from two reports that may both be incomplete.

    Compare model by model if their names match; otherwise, the overlap is unknown and the greater report counts.
    """
    if seen.keys() <= told.keys() or told.keys() <= seen.keys():
        models = dict.fromkeys([*told, *seen])
        return {model: _more(told.get(model), seen.get(model)) for model in models}
    return max(told, seen, key=lambda account: sum(used.tokens.prompt for used in account.values()))


def _more(one: ModelUsage | None, other: ModelUsage | None) -> ModelUsage:
    known = [used for used in (one, other) if used is not None]
    return max(known, key=lambda used: (used.tokens.prompt, used.tokens.output_tokens))


def _is_doubtful(state: TurnState) -> bool:
    """Return True if the report may be incomplete because of unreported or unreadable usage."""
    unread = any(report.unread or not report.subtype.startswith(_KNOWN) for report in state.reports)
    return unread or asks_aside(read_version(state.agent_version))


def _cut_off(report: Report, state: TurnState) -> bool:
    """Return True if the connection to the API failed: part of the last answer may have been billed unseen."""
    failure = state.api_failure
    return report.is_error and failure is not None and failure.category == "server_error" and not report.api_status


def _can_be_trusted(report: Report) -> bool:
    """Return True unless `modelUsage` may be wrong about cut or interrupted messages.

    It omits them (2.1.197) or guesses their output (2.1.330), and only the other account shows that. The error
    persists: a process that answers several prompts keeps counting from there.
    """
    confirmed = not report.contradictory and OWN_TOKENS not in report.unread
    return confirmed and report.terminal_reason != "aborted_streaming" and not report.cut_short

"""The tokens that Claude Code's output tells, and how far that account can be trusted.

It is complete where nothing that was printed, and nothing that the version is known to do, speaks for more.
"""

from __future__ import annotations

from collections.abc import Mapping

from adapters.claude_code.known import asks_aside, read_version
from adapters.claude_code.report import OWN_TOKENS
from adapters.events import Report
from adapters.turn_state import TurnState
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource

_KNOWN = ("success", "error")  # how subtypes begin
ByModel = Mapping[str, ModelUsage]


def told_usage(state: TurnState) -> Usage:
    """The account that the agent's output gives; what its subagents had to ask for again may be missing."""
    report = state.report
    if report is None or (report.of_session and state.resumed):
        return state.estimate
    whole = not state.answer_lost and not _cut_off(report, state) and not _is_doubtful(state)
    reported = Usage(report.by_model, UsageSource.RESULT, complete=whole)
    missed = misses(report.by_model, state.seen)
    if not missed and not (state.answer_lost and state.seen) and all(map(_can_be_trusted, state.reports)):
        return reported
    # An estimate either way: what is known of more.
    return Usage(greater(state.estimate.by_model, report.by_model), UsageSource.STREAM, complete=False)


def misses(reported: ByModel, seen: Mapping[str, Tokens]) -> bool:
    """Whether an account lacks a message that was printed. Its models may have other names there."""
    accounted = sum(used.tokens.prompt for used in reported.values())
    printed = sum(tokens.prompt for tokens in seen.values())
    both = reported.keys() & seen.keys()
    return accounted < printed or any(reported[model].tokens.prompt < seen[model].prompt for model in both)


def greater(seen: ByModel, told: ByModel) -> ByModel:
    """Of two accounts that may both lack something, what is known at least.

    Model by model where they have the same names; otherwise nobody knows what stands in both.
    """
    if seen.keys() <= told.keys() or told.keys() <= seen.keys():
        models = dict.fromkeys([*told, *seen])
        return {model: _more(told.get(model), seen.get(model)) for model in models}
    return max(told, seen, key=lambda account: sum(used.tokens.prompt for used in account.values()))


def _more(one: ModelUsage | None, other: ModelUsage | None) -> ModelUsage:
    known = [used for used in (one, other) if used is not None]
    return max(known, key=lambda used: (used.tokens.prompt, used.tokens.output_tokens))


def _is_doubtful(state: TurnState) -> bool:
    """Whether the account may be short for what the agent did not tell, or not in a form that is known."""
    unread = any(report.unread or not report.subtype.startswith(_KNOWN) for report in state.reports)
    return unread or asks_aside(read_version(state.agent_version))


def _cut_off(report: Report, state: TurnState) -> bool:
    """Whether the API's connection failed for good: of the last answer, some may have been billed unseen."""
    failure = state.api_failure
    return report.is_error and failure is not None and failure.category == "server_error" and not report.api_status


def _can_be_trusted(report: Report) -> bool:
    """`modelUsage` misses messages that were cut or interrupted (2.1.197), or guesses their output (2.1.330).

    Only its other account shows that. It never mends: a process that answers several prompts goes on counting from
    there.
    """
    confirmed = not report.contradictory and OWN_TOKENS not in report.unread
    return confirmed and report.terminal_reason != "aborted_streaming" and not report.cut_short

"""Exact usage from the records that the Gemini CLI keeps of a session.

`$GEMINI_CLI_HOME/.gemini/tmp/<workspace>/chats/session-<minute>-<first eight of the id>.jsonl`, and
`chats/<id>/<agent>.jsonl` for subagents; records are only ever added. Every answer of the model is a line with its
tokens, written when it is complete and again when its tools have ended; the last line with an id holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adapters.command import SessionFiles
from adapters.fold import TurnState
from adapters.gemini.tokens import of_message
from adapters.gemini.tools import ASKING
from adapters.lines import decode
from adapters.prices import PriceTable
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource


def session_files(session_id: str) -> SessionFiles:
    """Where the records of a session lie. The workspace's directory has a name that the CLI chooses."""
    chats = ".gemini/tmp/*/chats"
    return SessionFiles(
        root_env="GEMINI_CLI_HOME",
        root_default="",
        patterns=(f"{chats}/session-*-{session_id[:8]}.jsonl", f"{chats}/{session_id}/*.jsonl"),
    )


_CHOSEN = "auto"  # as the name of a model, and the beginning of some: a small model says which one shall answer


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of a model, as its last record tells."""

    model: str
    tokens: Tokens
    tools: frozenset[str]


class _Records:
    """What was added to a session's files."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.answers: dict[str, _Answer] = {}
        self.ends_with_answer = False  # False: the model was being asked
        for line in lines:
            try:
                self._read(decode(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # the last line of a killed process may be half a record

    def _read(self, record: dict[str, Any]) -> None:
        kind = record.get("type")
        if kind == "user":
            self.ends_with_answer = False
        elif kind == "gemini":
            number, model = record["id"], record["model"]
            if not isinstance(number, str) or not isinstance(model, str):
                raise TypeError("not an answer")
            tools = frozenset(str(call["name"]) for call in record.get("toolCalls") or ())
            self.answers[number] = _Answer(model, of_message(record["tokens"]), tools)
            self.ends_with_answer = True


def read_usage(lines: Iterable[bytes], state: TurnState, prices: PriceTable) -> Usage:
    """Sum up the answers. Where the agent has reported its tokens itself, only their price comes from here."""
    records = _Records(lines)
    by_model: dict[str, ModelUsage] = {}
    for answer in records.answers.values():
        billed = ModelUsage(answer.tokens, prices.request_cost_usd(answer.model, answer.tokens))
        by_model[answer.model] = by_model[answer.model] + billed if answer.model in by_model else billed
    report = state.report
    if report is not None:
        # After a failure that is no refusal of the API's, some of an answer may have been billed unseen.
        whole = not report.is_error or report.api_status is not None
        return Usage(_repriced(report.by_model, by_model), UsageSource.RESULT, complete=whole)
    return Usage(by_model, UsageSource.SESSION_FILES, complete=_is_whole(records, state))


def _repriced(reported: Mapping[str, ModelUsage], read: Mapping[str, ModelUsage]) -> dict[str, ModelUsage]:
    """The reported tokens, with the price of every request by itself where they are the same."""
    return {
        model: read[model] if model in read and read[model].tokens == used.tokens else used
        for model, used in reported.items()
    }


def _is_whole(records: _Records, state: TurnState) -> bool:
    """Whether nothing was billed that is not in the files: the model had answered, and its tools were at work.

    An answer in the middle is billed and not written down, and so is what tools ask a model themselves, and what a
    model is asked for the choice of another.
    """
    if (state.model or "").startswith(_CHOSEN):
        return False
    used = ASKING.intersection(state.tools.values())
    asked = any(answer.tools & ASKING for answer in records.answers.values())
    return bool(state.tools) and records.ends_with_answer and not used and not asked

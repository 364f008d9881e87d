"""Exact usage from the Gemini CLI's records of a session.

`$GEMINI_CLI_HOME/.gemini/tmp/<workspace>/chats/session-<minute>-<first eight of the id>.jsonl`, and
`chats/<id>/<agent>.jsonl` for subagents; the files are append-only. Every answer of the model is a line with its
tokens, written when it is complete and again when its tools have finished; the last line with an id is valid.

The agent's own report counts more: it includes requests outside the conversation, which choose a model, compress
the conversation, serve tools or check whether the model is done. Those are not recorded: in a killed turn, only
their effects show them (0.41.0 to 0.61.0, see `_Records.asked_beside`). The report counts input of the API's own
tools as output, like thoughts, and omits an answer that was broken off because it repeated itself. That answer's
usage is not recorded, either, but the message that the model received then is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from adapters.command import SessionFiles
from adapters.gemini.tokens import count, of_message
from adapters.gemini.tools import ASKING
from adapters.prices import PriceTable
from adapters.toolkit.json_lines import decode
from adapters.turn_state import TurnState
from adapters.usage import NO_TOKENS, ModelUsage, Tokens, Usage, UsageSource


def session_files(session_id: str) -> SessionFiles:
    """Return the location of a session's records. The CLI chooses the name of the workspace's directory."""
    chats = ".gemini/tmp/*/chats"
    return SessionFiles(
        root_env="GEMINI_CLI_HOME",
        root_default="",
        directory=".gemini",
        patterns=(f"{chats}/session-*-{session_id[:8]}.jsonl", f"{chats}/{session_id}/*.jsonl"),
    )


_LOOP = "System: Potential loop detected"
_CONTINUE = ("Please continue.", "System: Please continue.")  # sent after it asked whether the model was done
_CHECKED = 30  # answers to a prompt, after which it asks a model whether they repeat themselves
_LONG = 2**19  # tokens of a prompt: half a model's context, from which it compresses the conversation
_SEARCHING = frozenset({"google_web_search", "web_fetch"})  # call a model with the API's own tools
_CHOSEN = "auto"  # a model's name or prefix: a small model chooses which one answers


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of a model, from its last record."""

    model: str
    tokens: Tokens
    misplaced: int  # input tokens that the report counts as output
    tools: frozenset[str]
    prompt: int  # tokens


class _Records:
    """Records appended to a session's files."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.answers: dict[str, _Answer] = {}
        self.ends_with_answer = False  # False: an answer was pending
        self.found = False
        self.looped = False  # an answer was broken off
        self._chats = 0  # chats that began in the continued session
        self._shortened = False
        self._continued = False
        for line in lines:
            try:
                self._read(decode(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # the last line of a killed process may be half a record

    @property
    def asked_beside(self) -> bool:
        """Return True if models were or may have been asked outside the conversation."""
        answers = self.answers.values()
        long = len(answers) >= _CHECKED or any(answer.prompt >= _LONG for answer in answers)
        used = any(answer.tools & ASKING for answer in answers)
        return self._shortened or self._continued or long or used

    def _read(self, record: dict[str, Any]) -> None:
        kind = record.get("type")
        self.found = True
        if kind == "user":
            self.ends_with_answer = False
            texts = tuple(_texts(record.get("content")))
            self.looped |= any(text.startswith(_LOOP) for text in texts)
            self._continued |= any(text in _CONTINUE for text in texts)
        elif kind == "gemini":
            number, model = record["id"], record["model"]
            if not isinstance(number, str) or not isinstance(model, str):
                raise TypeError("not an answer")
            tools = frozenset(str(call["name"]) for call in record.get("toolCalls") or ())
            tokens = record["tokens"]
            prompt = count(tokens["input"])
            self.answers[number] = _Answer(model, of_message(tokens), _misplaced(tokens), tools, prompt)
            self.ends_with_answer = True
        elif "sessionId" in record.get("$set", ()):  # once when it continues, and after each compression
            self._chats += 1
            self._shortened |= bool(self.answers) or self._chats > 1


def read_usage(lines: Iterable[bytes], state: TurnState, prices: PriceTable, told: Usage) -> Usage:
    """Return the sum of the answers or, if there is a report, its usage (`told`) corrected by them."""
    records = _Records(lines)
    by_model: dict[str, ModelUsage] = {}
    for answer in records.answers.values():
        billed = ModelUsage(answer.tokens, prices.request_cost_usd(answer.model, answer.tokens))
        by_model[answer.model] = by_model[answer.model] + billed if answer.model in by_model else billed
    if state.report is not None:
        return _corrected(told, records, by_model, prices)
    return Usage(by_model, UsageSource.SESSION_FILES, complete=_is_whole(records, state))


def _corrected(told: Usage, records: _Records, read: Mapping[str, ModelUsage], prices: PriceTable) -> Usage:
    """Return the reported usage with input of the API's tools counted as input and each request priced alone."""
    misplaced = Counter[str]()
    for answer in records.answers.values():
        misplaced[answer.model] += answer.misplaced
    by_model = {model: _moved(model, used, misplaced[model], prices) for model, used in told.by_model.items()}
    rest = {model: used.tokens - _tokens(read, model) for model, used in by_model.items()}
    by_model |= {model: read[model] for model, left in rest.items() if model in read and left == NO_TOKENS}
    # More answers are recorded than reported: something else printed the report, or the agent went on after it.
    by_model |= {model: used for model, used in read.items() if model not in rest or not _is_count(rest[model])}
    found = records.found or not told.by_model  # requests refused at once may leave no record
    fits = found and read.keys() <= rest.keys() and all(map(_is_count, rest.values()))
    searched = any(answer.tools & _SEARCHING for answer in records.answers.values())
    unclear = searched and any(left.output_tokens for left in rest.values())  # may include input of the search
    return replace(told, by_model=by_model, complete=told.complete and fits and not records.looped and not unclear)


def _moved(model: str, used: ModelUsage, misplaced: int, prices: PriceTable) -> ModelUsage:
    """Return one model's usage with these tokens moved from output to input."""
    if not 0 < misplaced <= used.tokens.output_tokens:
        return used
    tokens = used.tokens + Tokens(misplaced, -misplaced)
    cost = prices.cost_usd(model, tokens)
    return ModelUsage(tokens, cost if cost == prices.request_cost_usd(model, tokens) else None)


def _tokens(read: Mapping[str, ModelUsage], model: str) -> Tokens:
    return read[model].tokens if model in read else NO_TOKENS


def _is_count(tokens: Tokens) -> bool:
    return min(tokens.input_tokens, tokens.output_tokens, tokens.cache_read_input_tokens) >= 0


def _misplaced(tokens: Mapping[str, Any]) -> int:
    """Return the input tokens of the API's tools, if the answer's total, and thus the report's, includes them."""
    read = count(tokens.get("tool"))
    known = count(tokens["input"]) + count(tokens["output"]) + count(tokens.get("thoughts"))
    return read if count(tokens.get("total")) >= known + read else 0


def _texts(content: object) -> Iterator[str]:
    """Yield the texts of a message."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _is_whole(records: _Records, state: TurnState) -> bool:
    """Return True if the files contain all that was billed: the model had answered, and its tools were running.

    Unfinished answers, answers that repeated themselves, and requests outside the conversation are billed but not
    recorded.
    """
    if (state.model or "").startswith(_CHOSEN):
        return False
    asked = records.asked_beside or ASKING.intersection(state.tools.values())
    return bool(state.tools) and records.ends_with_answer and not records.looped and not asked

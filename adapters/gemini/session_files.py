"""Exact usage from the records that the Gemini CLI keeps of a session.

`$GEMINI_CLI_HOME/.gemini/tmp/<workspace>/chats/session-<minute>-<first eight of the id>.jsonl`, and
`chats/<id>/<agent>.jsonl` for subagents; records are only ever added. Every answer of the model is a line with its
tokens, written when it is complete and again when its tools have ended; the last line with an id holds.

The agent's own report counts more: what it has asked beside the conversation, too, to choose a model, to make the
conversation shorter, for its tools, or whether it is done. None of that has a record: of a turn that was killed,
only what came of it tells (0.41.0 to 0.61.0, see `_Records.asked_beside`). The report does not tell what the API's
own tools have read from what the model has thought, and takes both for output; and it leaves out an answer that
was broken off because it repeated itself. No record has that one's bill, but there is one of what the model was
told then.
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
    """Where the records of a session lie. The workspace's directory has a name that the CLI chooses."""
    chats = ".gemini/tmp/*/chats"
    return SessionFiles(
        root_env="GEMINI_CLI_HOME",
        root_default="",
        patterns=(f"{chats}/session-*-{session_id[:8]}.jsonl", f"{chats}/{session_id}/*.jsonl"),
    )


_LOOP = "System: Potential loop detected"
_CONTINUE = ("Please continue.", "System: Please continue.")  # it has asked whether the model was done
_CHECKED = 30  # answers to a prompt, after which it asks whether they repeat themselves
_LONG = 2**19  # tokens of a prompt: half of what a model takes, from which on it makes a conversation shorter
_SEARCHING = frozenset({"google_web_search", "web_fetch"})  # ask a model with tools of the API's
_CHOSEN = "auto"  # as the name of a model, and the beginning of some: a small model says which one shall answer


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of a model, as its last record tells."""

    model: str
    tokens: Tokens
    misplaced: int  # tokens of input that the report takes for output
    tools: frozenset[str]
    prompt: int  # tokens


class _Records:
    """What was added to a session's files."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.answers: dict[str, _Answer] = {}
        self.ends_with_answer = False  # False: the model was being asked
        self.found = False
        self.looped = False  # an answer was broken off
        self._chats = 0  # that began in the session it goes on in
        self._shortened = False
        self._continued = False
        for line in lines:
            try:
                self._read(decode(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # the last line of a killed process may be half a record

    @property
    def asked_beside(self) -> bool:
        """Whether models were asked beside the conversation, or may have been."""
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
        elif "sessionId" in record.get("$set", ()):  # once as it goes on, and whenever the chat was made shorter
            self._chats += 1
            self._shortened |= bool(self.answers) or self._chats > 1


def read_usage(lines: Iterable[bytes], state: TurnState, prices: PriceTable, told: Usage) -> Usage:
    """Sum up the answers, or correct the account that the agent has `told` by them, if it has told one."""
    records = _Records(lines)
    by_model: dict[str, ModelUsage] = {}
    for answer in records.answers.values():
        billed = ModelUsage(answer.tokens, prices.request_cost_usd(answer.model, answer.tokens))
        by_model[answer.model] = by_model[answer.model] + billed if answer.model in by_model else billed
    if state.report is not None:
        return _corrected(told, records, by_model, prices)
    return Usage(by_model, UsageSource.SESSION_FILES, complete=_is_whole(records, state))


def _corrected(told: Usage, records: _Records, read: Mapping[str, ModelUsage], prices: PriceTable) -> Usage:
    """The agent's account, with what tools of the API have read as input, and every request by its own price."""
    misplaced = Counter[str]()
    for answer in records.answers.values():
        misplaced[answer.model] += answer.misplaced
    by_model = {model: _moved(model, used, misplaced[model], prices) for model, used in told.by_model.items()}
    rest = {model: used.tokens - _tokens(read, model) for model, used in by_model.items()}
    by_model |= {model: read[model] for model, left in rest.items() if model in read and left == NO_TOKENS}
    found = records.found or not told.by_model  # what was refused at once need not be there
    fits = found and read.keys() <= rest.keys() and all(map(_is_count, rest.values()))
    searched = any(answer.tools & _SEARCHING for answer in records.answers.values())
    unclear = searched and any(
        left.output_tokens for left in rest.values()
    )  # what the search read may be in there
    return replace(told, by_model=by_model, complete=told.complete and fits and not records.looped and not unclear)


def _moved(model: str, used: ModelUsage, misplaced: int, prices: PriceTable) -> ModelUsage:
    """One model's part with these tokens as input instead of output."""
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
    """What the API's tools have read, where the answer's total, and with it the report's, has it."""
    read = count(tokens.get("tool"))
    known = count(tokens["input"]) + count(tokens["output"]) + count(tokens.get("thoughts"))
    return read if count(tokens.get("total")) >= known + read else 0


def _texts(content: object) -> Iterator[str]:
    """The texts of a message; its other parts are of no interest."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _is_whole(records: _Records, state: TurnState) -> bool:
    """Whether nothing was billed that is not in the files: the model had answered, and its tools were at work.

    An answer in the middle is billed and not written down, and so is one that repeated itself, and all that models
    are asked beside the conversation.
    """
    if (state.model or "").startswith(_CHOSEN):
        return False
    asked = records.asked_beside or ASKING.intersection(state.tools.values())
    return bool(state.tools) and records.ends_with_answer and not records.looped and not asked

"""The exact bill of a turn, from the rollouts that Codex keeps: one file a thread.

`$CODEX_HOME/sessions/YEAR/MONTH/DAY/rollout-TIME-THREAD.jsonl`. A `token_usage_record` follows every answer of the
model, also in turns that fail or are killed; `turn_context` names the model. A subagent is a thread of its own,
which the rollout of the one that called it names, and which the stream counts nowhere. A `token_count` follows
every try to get an answer, too, so that one without a bill tells of an answer that broke off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.codex.tokens import UNKNOWN_MODEL, read_tokens
from adapters.command import SessionFiles
from adapters.contract import NextFiles
from adapters.fields import string
from adapters.fold import TurnState
from adapters.lines import decode
from adapters.prices import PriceTable
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource

_THREAD = re.compile(r"[A-Za-z0-9_-]{1,128}")
# What of a rollout matters here, so that not all of its megabytes are decoded.
_USED = (
    b'"token_usage_record"', b'"turn_context"', b'"session_meta"', b'"SubAgentActivity"', b"_call",
    b'"token_count"', b'"compacted"', b'"task_started"', b'"task_complete"',
)  # fmt: skip
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_ABORTED = "aborted by user"  # in the place of a result: the turn ended, and asked nobody what to make of it
_COUNTED_BY_COMPACTION = 2  # once as it starts, once when it is done; its own answer has a bill, as any other


def session_files(*threads: str) -> SessionFiles:
    """Where the rollouts of threads lie. The ids are unique, so the days need not be known."""
    patterns = tuple(f"sessions/*/*/*/rollout-*-{thread}.jsonl" for thread in threads)
    return SessionFiles(root_env="CODEX_HOME", root_default=".codex", patterns=patterns)


def next_files(state: TurnState) -> NextFiles:
    """The rollout of the turn's thread, then those of the subagents that it names, and so on."""

    def following(lines: Sequence[bytes]) -> SessionFiles | None:
        if state.session_id is None:
            return None
        if not lines:
            return session_files(state.session_id)
        rollouts = _Rollouts(state.session_id)
        rollouts.read(lines)
        unread = rollouts.subagents - rollouts.threads
        return session_files(*sorted(unread)) if unread else None

    return following


def read_usage(lines: Iterable[bytes], state: TurnState, prices: PriceTable) -> Usage:
    """Sum up all answers to the turn and its subagents. Incomplete if one may have been under way."""
    rollouts = _Rollouts(state.session_id or "")
    rollouts.read(lines)
    by_model: dict[str, ModelUsage] = {}
    for answer in rollouts.answers.values():
        if answer.root_turn not in rollouts.own_turns:
            continue  # of a subagent of an earlier turn
        model = rollouts.models.get(answer.turn, UNKNOWN_MODEL)
        used = ModelUsage(answer.tokens, prices.request_cost_usd(model, answer.tokens))
        by_model[model] = by_model[model] + used if model in by_model else used
    ended = state.report is not None or (bool(state.tools) and not rollouts.asked)
    reported = state.report is not None and not state.report.is_error
    unbilled = (reported and rollouts.main_lost) or rollouts.subagent_lost
    whole = ended and not state.answer_lost and not unbilled and rollouts.subagents <= rollouts.threads
    return Usage(by_model, UsageSource.SESSION_FILES, complete=whole)


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of the model."""

    turn: str
    root_turn: str  # the turn of the main thread that it served
    tokens: Tokens


@dataclass(slots=True)
class _Thread:
    """How far the answers of one thread have come, in what was read of it."""

    calls: int = 0  # of tools that have given nothing yet
    called: bool = False  # since its last bill: tool calls come before the bill of their answer
    asking: bool = False  # it waited for an answer when it ended
    unbilled: int = 0  # tries to get an answer, less the answers that have a bill

    @property
    def lost(self) -> bool:
        """Whether an answer broke off, or has a bill that nobody told."""
        return self.asking or self.called or self.unbilled > 0

    def take(self, kind: str, payload: dict[str, Any]) -> None:
        """Follow one record."""
        if kind == "token_usage_record":
            self.called = self.asking = False
            self.unbilled -= 1
        elif kind == "compacted":
            self.asking = True
            self.unbilled -= _COUNTED_BY_COMPACTION
        elif kind == "event_msg":
            self._event(payload["type"])
        elif kind == "response_item":
            self._item(payload["type"], payload)

    def _event(self, event: object) -> None:
        if event == "token_count":
            self.unbilled += 1
        elif event == "task_started":
            self.calls, self.called, self.asking = 0, False, True
        elif event == "task_complete":
            self.asking = False

    def _item(self, item: object, payload: dict[str, Any]) -> None:
        if item in _CALLS:
            self.calls += 1
            self.called = True
        elif item in _RESULTS:
            self.calls -= 1
            self.asking = self.calls <= 0 and not str(payload.get("output")).endswith(_ABORTED)


@dataclass(slots=True)
class _Rollouts:
    """What the lines of several rollouts tell, those of the main thread first."""

    main: str
    threads: set[str] = field(default_factory=set)  # that have been read
    subagents: set[str] = field(default_factory=set)
    own_turns: set[str] = field(default_factory=set)  # of the main thread, in what was read of it
    models: dict[str, str] = field(default_factory=dict)  # by turn
    answers: dict[str, _Answer] = field(default_factory=dict)  # by the response's id: a fork repeats its parent's
    progress: dict[str, _Thread] = field(default_factory=dict)  # by thread
    _thread: str = ""

    @property
    def asked(self) -> bool:
        """Whether the last answer of some thread is not in the books: its tool calls came before its bill."""
        return any(thread.called for thread in self.progress.values())

    @property
    def main_lost(self) -> bool:
        """Whether the main thread, which has ended, got an answer without a bill."""
        return self.main in self.progress and self.progress[self.main].unbilled > 0

    @property
    def subagent_lost(self) -> bool:
        """Whether some answer to a subagent is not in the books. The stream says nothing of those."""
        return any(thread.lost for name, thread in self.progress.items() if name != self.main)

    def read(self, lines: Iterable[bytes]) -> None:
        """Take lines in; those that cannot be read are passed over: a killed process may leave half a line."""
        self._thread = self.main
        self.threads.add(self.main)
        for line in lines:
            if any(part in line for part in _USED):
                try:
                    record = decode(line)
                    self._take(record["type"], record["payload"])
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue

    def _take(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "session_meta":
            self._begin(string(payload["id"]))
        elif kind == "turn_context":
            self.models[string(payload["turn_id"])] = string(payload["model"])
        elif kind == "token_usage_record":
            self._answered(payload)
        elif kind == "event_msg" and payload["type"] == "item_completed":
            subagent = payload["item"].get("agent_thread_id")
            if isinstance(subagent, str) and _THREAD.fullmatch(subagent):
                self.subagents.add(subagent)
        self.progress.setdefault(self._thread, _Thread()).take(kind, payload)

    def _begin(self, thread: str) -> None:
        """The rollout of another thread. One that is known is a fork's copy of its parent's first line."""
        if thread not in self.threads:
            self._thread = thread
            self.threads.add(thread)

    def _answered(self, payload: dict[str, Any]) -> None:
        thread, root_turn = string(payload["thread_id"]), string(payload["root_turn_id"])
        tokens = read_tokens(payload["usage"])
        self.threads.add(thread)
        if thread == self.main:
            self.own_turns.add(root_turn)
        self.answers.setdefault(
            string(payload["response_id"]), _Answer(string(payload["turn_id"]), root_turn, tokens)
        )

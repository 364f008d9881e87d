"""The exact bill of a turn, from the rollouts that Codex keeps: one file a thread.

`$CODEX_HOME/sessions/YEAR/MONTH/DAY/rollout-TIME-THREAD.jsonl`. A `token_usage_record` follows every answer of the
model, also in turns that fail or are killed; `turn_context` names the model. A subagent is a thread of its own,
which the rollout of the one that called it names, and which the stream counts nowhere.
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
_USED = (b'"token_usage_record"', b'"turn_context"', b'"session_meta"', b'"SubAgentActivity"', b"_call")


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
    whole = ended and not state.answer_lost and rollouts.subagents <= rollouts.threads
    return Usage(by_model, UsageSource.SESSION_FILES, complete=whole)


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of the model."""

    turn: str
    root_turn: str  # the turn of the main thread that it served
    tokens: Tokens


@dataclass(slots=True)
class _Rollouts:
    """What the lines of several rollouts tell, those of the main thread first."""

    main: str
    threads: set[str] = field(default_factory=set)  # that have been read
    subagents: set[str] = field(default_factory=set)
    own_turns: set[str] = field(default_factory=set)  # of the main thread, in what was read of it
    models: dict[str, str] = field(default_factory=dict)  # by turn
    answers: dict[str, _Answer] = field(default_factory=dict)  # by the response's id: a fork repeats its parent's
    asked: bool = False  # the last answer of some thread is not in the books: its tool calls came before its bill
    _thread: str = ""

    def read(self, lines: Iterable[bytes]) -> None:
        """Take lines in; those that cannot be read are passed over: a killed process may leave half a line."""
        self._thread = self.main
        self.threads.add(self.main)
        calling: dict[str, bool] = {}
        for line in lines:
            if any(part in line for part in _USED):
                try:
                    record = decode(line)
                    self._take(record["type"], record["payload"], calling)
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue
        self.asked = any(calling.values())

    def _take(self, kind: str, payload: dict[str, Any], calling: dict[str, bool]) -> None:
        if kind == "session_meta":
            self._thread = string(payload["id"])
            self.threads.add(self._thread)
        elif kind == "turn_context":
            self.models[string(payload["turn_id"])] = string(payload["model"])
        elif kind == "token_usage_record":
            self._answered(payload)
            calling[self._thread] = False
        elif kind == "response_item" and payload["type"] in ("function_call", "custom_tool_call"):
            calling[self._thread] = True
        elif kind == "event_msg" and payload["type"] == "item_completed":
            subagent = payload["item"].get("agent_thread_id")
            if isinstance(subagent, str) and _THREAD.fullmatch(subagent):
                self.subagents.add(subagent)

    def _answered(self, payload: dict[str, Any]) -> None:
        thread, root_turn = string(payload["thread_id"]), string(payload["root_turn_id"])
        tokens = read_tokens(payload["usage"])
        self.threads.add(thread)
        if thread == self.main:
            self.own_turns.add(root_turn)
        self.answers.setdefault(
            string(payload["response_id"]), _Answer(string(payload["turn_id"]), root_turn, tokens)
        )

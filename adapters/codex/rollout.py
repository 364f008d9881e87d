"""Exact usage of a turn from Codex's rollouts: one file per thread.

`$CODEX_HOME/sessions/YEAR/MONTH/DAY/rollout-TIME-THREAD.jsonl`. A `token_usage_record` follows every answer of the
model, also in turns that fail or are killed; `turn_context` names the model. A subagent is a separate thread,
named in the rollout of its caller and not counted in the stream. A `token_count` also follows every try to get an
answer, so one without a usage record indicates an answer that broke off. Older versions record nothing else:
`counts` derives the answers from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapters.codex.counts import Counts
from adapters.codex.progress import Progress
from adapters.codex.tokens import UNKNOWN_MODEL, read_tokens
from adapters.command import SessionFiles
from adapters.contract import NextFiles
from adapters.prices import PriceTable
from adapters.toolkit.json_fields import string
from adapters.toolkit.json_lines import decode
from adapters.turn_state import TurnState
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource, sum_by_model

_THREAD = re.compile(r"[A-Za-z0-9_-]{1,128}")
# Only lines with one of these are decoded: a rollout may have megabytes.
_USED = (
    b'"token_usage_record"', b'"turn_context"', b'"session_meta"', b'"SubAgentActivity"', b"_call",
    b'"token_count"', b'"compacted"', b'"task_started"', b'"task_complete"', b'"role":"assistant"',
    b'"type":"reasoning"',
)  # fmt: skip
_SPAWN = "spawn_agent"  # returns the id of the new thread
_GO_ON = ("send_input", "resume_agent")  # take the id of a thread, which an earlier turn may have started


def session_files(*threads: str) -> SessionFiles:
    """Return the location of the threads' rollouts. Ids are unique, so any day matches."""
    patterns = tuple(f"sessions/*/*/*/rollout-*-{thread}.jsonl" for thread in threads)
    return SessionFiles(root_env="CODEX_HOME", root_default=".codex", patterns=patterns)


def next_files(state: TurnState) -> NextFiles:
    """Return a function that chooses the rollouts to read: the turn's thread, then its subagents, and so on."""

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
    """Return the sum of all answers to the turn and its subagents; incomplete if one may have been in progress."""
    rollouts = _Rollouts(state.session_id or "", retried=state.answer_lost)
    rollouts.read(lines)
    priced = ((model, ModelUsage(used, prices.request_cost_usd(model, used))) for model, used in rollouts.billed())
    ended = _all_billed(rollouts, state) if rollouts.main in rollouts.recorded else _all_counted(rollouts, state)
    told = rollouts.kinds_told and not rollouts.subagent_lost and rollouts.subagents <= rollouts.threads
    whole = ended and told and not state.answer_lost
    return Usage(sum_by_model(priced), UsageSource.SESSION_FILES, complete=whole)


def _all_billed(rollouts: _Rollouts, state: TurnState) -> bool:
    """Return True if the main thread got all its answers and each has a usage record."""
    if state.report is None:
        # The stream may end before it reports a tool.
        return (bool(state.tools) or rollouts.progress[rollouts.main].working) and not rollouts.asked
    return state.report.is_error or not rollouts.main_lost


def _all_counted(rollouts: _Rollouts, state: TurnState) -> bool:
    """Like `_all_billed`, for rollouts with counts only: a successful turn reports the last count itself."""
    counts, progress = rollouts.counts[rollouts.main], rollouts.progress[rollouts.main]
    if counts.gap:
        return False
    if state.report is None:
        return bool(counts.answers) and not progress.waiting
    told = state.report.by_model.get(UNKNOWN_MODEL)
    return state.report.is_error or (told is not None and told.tokens == counts.total)


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of the model."""

    turn: str
    root_turn: str  # the main thread's turn that it belongs to
    tokens: Tokens


@dataclass(slots=True)
class _Rollouts:
    """Contents of several rollouts, the main thread's first."""

    main: str
    retried: bool = False  # the main thread may have received a partial answer
    threads: set[str] = field(default_factory=set)  # threads that have been read
    subagents: set[str] = field(default_factory=set)
    own_turns: set[str] = field(default_factory=set)  # turns of the main thread in the lines read
    models: dict[str, str] = field(default_factory=dict)  # by turn
    answers: dict[str, _Answer] = field(default_factory=dict)  # by response id: a fork repeats its parent's
    recorded: set[str] = field(default_factory=set)  # threads with usage records
    progress: dict[str, Progress] = field(default_factory=dict)  # by thread
    counts: dict[str, Counts] = field(default_factory=dict)  # by thread
    _thread: str = ""
    _spawns: set[str] = field(default_factory=set)  # calls that start a subagent

    @property
    def asked(self) -> bool:
        """Return True if a thread's last answer has tool calls but no usage record, which would follow them."""
        return any(thread.called for thread in self.progress.values())

    @property
    def main_lost(self) -> bool:
        """Return True if the finished main thread got an answer without a usage record."""
        return self.main in self.progress and self.progress[self.main].unbilled > 0

    @property
    def subagent_lost(self) -> bool:
        """Return True if usage of a subagent's answer may be missing; the stream does not report subagents."""
        return any(self._lost(thread) for thread in self.progress if thread != self.main)

    @property
    def kinds_told(self) -> bool:
        """Return True if all counts used for answers report cache writes separately."""
        return all(counts.kinds_told for counts in self._counted())

    def billed(self) -> Iterator[tuple[str, Tokens]]:
        """Yield the model and the billed tokens of each answer."""
        for answer in self.answers.values():
            if answer.root_turn in self.own_turns:  # others belong to subagents of earlier turns
                yield self.models.get(answer.turn, UNKNOWN_MODEL), answer.tokens
        for counts in self._counted():
            for turn, tokens in counts.answers:
                yield self.models.get(turn, UNKNOWN_MODEL), tokens

    def read(self, lines: Iterable[bytes]) -> None:
        """Process lines, skipping unreadable ones: a killed process may leave half a line."""
        self._enter(self.main)
        for line in lines:
            if any(part in line for part in _USED):
                try:
                    record = decode(line)
                    self._take(record["type"], record["payload"])
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue

    def _enter(self, thread: str) -> None:
        self._thread = thread
        self.threads.add(thread)
        self.progress[thread], self.counts[thread] = Progress(), Counts(thread)

    def _counted(self) -> Iterator[Counts]:
        """Yield the counts of threads without usage records."""
        return (counts for thread, counts in self.counts.items() if thread not in self.recorded)

    def _lost(self, thread: str) -> bool:
        progress, counts = self.progress[thread], self.counts[thread]
        if thread in self.recorded:
            return progress.lost
        return progress.waiting or counts.gap or counts.repeats > 0

    def _take(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "session_meta":
            self._begin(string(payload["id"]))
        elif kind == "turn_context":
            # In a long thread, compaction precedes this record.
            self.models[string(payload["turn_id"])] = string(payload["model"])
        elif kind == "token_usage_record":
            self._answered(payload)
        elif kind == "compacted":
            self.counts[self._thread].compacted(payload.get("message"))
        elif kind == "event_msg":
            self._event(payload["type"], payload)
        elif kind == "response_item":
            self._item(payload["type"], payload)
        self.progress[self._thread].take(kind, payload)

    def _begin(self, thread: str) -> None:
        """Process a rollout's first line. For a thread already seen, it is a fork's copy of its parent's line."""
        if thread not in self.threads:
            self._enter(thread)
        if thread == self._thread:
            self.counts[thread].begin()
        else:
            self.counts[self._thread].forked = True

    def _answered(self, payload: dict[str, Any]) -> None:
        thread, root_turn = string(payload["thread_id"]), string(payload["root_turn_id"])
        tokens = read_tokens(payload["usage"])
        self.threads.add(thread)
        self.recorded.add(thread)
        if thread == self.main:
            self.own_turns.add(root_turn)
        self.answers.setdefault(
            string(payload["response_id"]), _Answer(string(payload["turn_id"]), root_turn, tokens)
        )

    def _event(self, event: object, payload: dict[str, Any]) -> None:
        counts = self.counts[self._thread]
        if event == "task_started":
            counts.begin_turn(string(payload["turn_id"]))
        elif event == "token_count":
            if counts.count(payload.get("info"), retried=self.retried):
                self.progress[self._thread].counted()
        elif event == "item_completed":
            self._subagent(payload["item"].get("agent_thread_id"))

    def _item(self, item: object, payload: dict[str, Any]) -> None:
        called = isinstance(item, str) and item.endswith("_call")
        if called or item == "reasoning" or payload.get("role") == "assistant":
            self.counts[self._thread].said = True
        name, call = payload.get("name"), payload.get("call_id")
        if called and name == _SPAWN:
            self._spawns.add(string(call))
        elif called and name in _GO_ON:
            self._names(payload.get("arguments"), "target", "id")
        elif item == "function_call_output" and call in self._spawns:
            self._names(payload.get("output"), "agent_id")

    def _names(self, text: object, *keys: str) -> None:
        """Record the subagents named in a text that is a JSON object."""
        with suppress(ValueError, TypeError, AttributeError, RecursionError):  # not JSON: the call was refused
            said = orjson.loads(string(text))
            for key in keys:
                self._subagent(said.get(key))

    def _subagent(self, subagent: object) -> None:
        if isinstance(subagent, str) and _THREAD.fullmatch(subagent):
            self.subagents.add(subagent)

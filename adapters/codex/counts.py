"""Derives answers from a thread's token counts, for versions whose rollouts lack the usage of each answer.

Up to at least 0.150.1, a rollout has only `token_count`: the thread's usage since its creation, including its
copied beginning and earlier processes, and the usage of the last answer. 0.128.0 also writes one when an answer
begins, with the previous numbers; the others write one after each try, once its tool calls have finished.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from adapters.codex.tokens import read_tokens, tells_cache_writes
from adapters.usage import NO_TOKENS, Tokens

_MILLISECONDS = 13  # leading characters of a turn's or thread's id that encode its time


@dataclass(slots=True)
class Counts:
    """Token counts of one thread in the lines read. A count that may be an earlier answer's adds no answer."""

    thread: str
    total: Tokens | None = None  # None: earlier usage is unknown
    answers: list[tuple[str, Tokens]] = field(default_factory=list)  # with their turns
    forked: bool = False  # begins with a copy of another thread
    copied: bool = False  # the current lines belong to that copy
    said: bool = False  # the model has produced output since the turn began
    gap: bool = False  # an answer is not counted, or a count was not understood
    repeats: int = 0  # counts without an answer: each may belong to a try that broke off
    kinds_told: bool = True  # False: cache writes are included in the input
    _turn: str = ""

    def begin(self) -> None:
        """Note that the rollout was read from its first line."""
        if self.total is None:
            self.total = NO_TOKENS

    def begin_turn(self, turn: str) -> None:
        """Note that a turn begins; a turn older than the thread was copied."""
        self._turn = turn
        self.copied = self.forked and turn[:_MILLISECONDS] < self.thread[:_MILLISECONDS]
        self.said = False

    def compacted(self, summary: object) -> None:
        """Note a compaction: without a summary by a model, the API did it, and it is not counted."""
        self.gap |= not summary and not self.copied

    def count(self, info: object, *, retried: bool) -> bool:
        """Process a `token_count`; return True if it reports an answer.

        After a retry, which may follow a partial answer, a first count may be that of an earlier process.
        """
        try:
            return self._count(info, retried=retried)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.gap = True
            return False

    def _count(self, info: Any, *, retried: bool) -> bool:
        if info is None:
            self.begin()
            self.repeats += not self.copied
            return False
        total, last = read_tokens(info["total_token_usage"]), read_tokens(info["last_token_usage"])
        before, self.total = self.total, total
        if self.copied:
            return False
        if before is None:
            before = total - last if self.said and not retried else total
        if total == before:
            self.repeats += 1
            return False
        if total != before + last:
            self.gap = True
            return False
        self.answers.append((self._turn, last))
        self.kinds_told &= tells_cache_writes(info["last_token_usage"])
        return True

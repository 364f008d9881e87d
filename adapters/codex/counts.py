"""What a thread's own count of tokens tells of its answers, for versions whose rollouts have no bill an answer.

Up to 0.150.1 at least, a rollout has a `token_count` alone: what the thread has used in its whole life, its copied
beginning and earlier processes included, and what the last answer has used. 0.128.0 writes one when an answer
begins, too, with the numbers of the one before; the others one after each try, the calls of its tools done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from adapters.codex.tokens import read_tokens, tells_cache_writes
from adapters.usage import NO_TOKENS, Tokens

_MILLISECONDS = 13  # characters of an id that begins with its time, as those of turns and threads do


@dataclass(slots=True)
class Counts:
    """One thread, in what was read of it. Nothing is taken for an answer that may be an earlier one's."""

    thread: str
    total: Tokens | None = None  # None: nobody has told what it had used before
    answers: list[tuple[str, Tokens]] = field(default_factory=list)  # with their turns
    forked: bool = False  # it begins with a copy of another one
    copied: bool = False  # what is read now is of that copy
    said: bool = False  # the model has said something since the turn began
    gap: bool = False  # an answer is in no count, or a count not understood
    repeats: int = 0  # counts without an answer: each may be of a try that broke off
    kinds_told: bool = True  # False: what was written to the cache is among the input
    _turn: str = ""

    def begin(self) -> None:
        """Its rollout was read from its first line."""
        if self.total is None:
            self.total = NO_TOKENS

    def begin_turn(self, turn: str) -> None:
        """A turn of it begins: one that is older than the thread was copied."""
        self._turn = turn
        self.copied = self.forked and turn[:_MILLISECONDS] < self.thread[:_MILLISECONDS]
        self.said = False

    def compacted(self, summary: object) -> None:
        """Note that it was made shorter: without a summary by a model, the API did it, and nobody counts that."""
        self.gap |= not summary and not self.copied

    def count(self, info: object, *, retried: bool) -> bool:
        """Take a `token_count` in; returns whether it tells of an answer.

        Whoever has tried again may have had half an answer: then a first count may be that of an earlier process.
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

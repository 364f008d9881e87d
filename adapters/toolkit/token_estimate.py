"""Token estimates of prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass

_CHARACTERS = 3  # per token, for code and text in any language: a low estimate
_ANSWER = 0.5  # answer tokens per prompt token


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """Estimated tokens of a prompt and its answer, without what the agent reads and thinks."""

    input: int
    output: int

    @property
    def total(self) -> int:
        """Return the sum of input and output."""
        return self.input + self.output


def estimate_tokens(prompt: str) -> TokenEstimate:
    """Return an estimate for any agent, erring on the high side."""
    read = math.ceil(len(prompt) / _CHARACTERS)
    return TokenEstimate(read, math.ceil(read * _ANSWER))

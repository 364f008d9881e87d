"""How many tokens a prompt may come to, where nobody has counted them."""

from __future__ import annotations

import math
from dataclasses import dataclass

_CHARACTERS = 3  # of a token: text in any language, and code, rather below than above
_ANSWER = 0.5  # of what went in


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """What a prompt may come to; the agent's own reading and thinking are not in it."""

    input: int
    output: int

    @property
    def total(self) -> int:
        """Both."""
        return self.input + self.output


def estimate_tokens(prompt: str) -> TokenEstimate:
    """The same for every agent, and rather too much than too little."""
    read = math.ceil(len(prompt) / _CHARACTERS)
    return TokenEstimate(read, math.ceil(read * _ANSWER))

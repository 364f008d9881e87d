"""A message of the API while it is being streamed: what it has cost so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from adapters.claude_code.prices import cost_usd
from adapters.claude_code.tokens import long_lived_cache, read_tokens
from adapters.events import TokenUsage
from adapters.toolkit.json_fields import string
from adapters.usage import Tokens


@dataclass(frozen=True, slots=True)
class StreamedMessage:
    """One message. Its methods raise KeyError, TypeError, ValueError or AttributeError for unreadable events."""

    id: str
    model: str
    tokens: Tokens
    long_lived: int  # cache writes kept for an hour
    final: bool = False  # the message is complete

    @classmethod
    def begun(cls, message: dict[str, Any]) -> StreamedMessage:
        """Return the message of a `message_start`, or of a line with a part of it."""
        usage = message["usage"]
        final = message.get("stop_reason") is not None
        number, model = string(message["id"]), string(message["model"])
        return cls(number, model, read_tokens(usage), long_lived_cache(usage), final)

    def continued(self, event: dict[str, Any]) -> StreamedMessage:
        """Return the message after a `message_delta`, whose counts include the earlier ones."""
        tokens = read_tokens(event.get("usage") or {}, self.tokens)
        final = (event.get("delta") or {}).get("stop_reason") is not None
        return replace(self, tokens=tokens, final=final)

    def usage(self, before: StreamedMessage | None = None, api_duration_ms: int | None = None) -> TokenUsage:
        """Return what has been added, since `before` if given."""
        added, cost = self.tokens, self._cost_usd
        if before is not None:
            added, known = self.tokens - before.tokens, before._cost_usd
            cost = None if cost is None or known is None else cost - known
        return TokenUsage(self.model, added, self.final, api_duration_ms, self.id, cost)

    @property
    def _cost_usd(self) -> float | None:
        return cost_usd(self.model, self.tokens, self.long_lived)

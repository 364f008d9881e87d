"""Classifies Codex's failures by their messages: Codex has no error codes (0.169.0).

To recognize another failure: add its words to `_KINDS`, more specific ones first.
"""

from __future__ import annotations

import re

from adapters import errors
from adapters.errors import TurnError
from adapters.toolkit.error_mapping import kind_of_status

_STATUS = re.compile(r"status:? (\d{3})\b")
_OVERLOADED = 503

_KINDS: tuple[tuple[str, type[TurnError]], ...] = (
    ("hit your usage limit", errors.OutOfTokens),
    ("Quota exceeded", errors.OutOfTokens),
    ("out of credits", errors.OutOfTokens),
    ("ran out of room in the model's context window", errors.AgentFailed),
    ("Missing environment variable", errors.AuthenticationFailed),
    ("upgrade to Plus", errors.AuthenticationFailed),
    ("access token could not be refreshed", errors.AuthenticationFailed),
    ("high demand", errors.Overloaded),
    ("at capacity", errors.Overloaded),
    ("nsupported model", errors.InvalidRequest),
)
_BROKEN = re.compile(r"stream disconnected|Connection failed|[Nn]etwork error|error sending request|timed? ?out")


def status_of(text: str) -> int | None:
    """Return the HTTP status in a message; None if it has none: an answer may have been in progress."""
    status = _STATUS.search(text)
    if status is not None:
        return int(status[1])
    # Codex prints this instead of any status of 500 and above.
    return _OVERLOADED if "high demand" in text else None


def broke_off(text: str) -> bool:
    """Return True if an answer broke off in the middle, so that its cost is unknown."""
    return "stream disconnected" in text and status_of(text) is None


def fault(text: str) -> TurnError:
    """Return the error for a message of Codex."""
    for words, kind in _KINDS:
        if words in text:
            return kind(text)
    status = status_of(text)
    if status is not None:
        return kind_of_status(status)(text)
    return (errors.ApiUnreachable if _BROKEN.search(text) else errors.AgentFailed)(text)

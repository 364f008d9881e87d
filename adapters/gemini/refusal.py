"""What the Gemini CLI writes to stderr of a request that the model's API refused.

Measured: 0.45.2 and 0.52.0 report an unknown error, and exit with 1, where the API has limited the rate, was
overloaded or did not know the model; 0.41.0 and 0.61.0 name the failure, and not always its status. All four write
the error and its status to stderr.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGINS = "Error when talking to Gemini API"
_ERROR = re.compile(r"\b[A-Za-z]*Error: (.+)")
_STATUS = re.compile(r"^\s*(?:cause: \{ )?(?:code|status): ([45]\d\d)\b", re.MULTILINE)
_LONGEST = 300  # characters of a message


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API's answer to the last request."""

    message: str  # blank: none that could be read
    status: int | None  # HTTP


def last_refusal(stderr: str) -> Refusal:
    """Return what stderr says of the last request that failed; blank where it says nothing."""
    _, _, said = stderr.rpartition(_BEGINS)
    first, _, rest = said.partition("\n")
    message, status = _ERROR.search(first), _STATUS.search(rest)
    return Refusal(message[1][:_LONGEST] if message else "", int(status[1]) if status else None)

"""Reads from the Gemini CLI's stderr why the model's API refused a request.

Measured: 0.45.2 and 0.52.0 report an unknown error and exit with 1 if the API limits the rate, is overloaded or
does not have the model; 0.41.0 and 0.61.0 name the failure, but not always its status. All four write the error
and its status to stderr.
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

    message: str  # blank: unreadable
    status: int | None  # HTTP


def last_refusal(stderr: str) -> Refusal:
    """Return the refusal of the last failed request, as far as stderr has it."""
    _, _, said = stderr.rpartition(_BEGINS)
    first, _, rest = said.partition("\n")
    message, status = _ERROR.search(first), _STATUS.search(rest)
    return Refusal(message[1][:_LONGEST] if message else "", int(status[1]) if status else None)

"""Notes of requests: one for each, opened before anything of it goes to the API, and closed with its cost.

A note has no prompt and no answer. One that is left open means that its gateway was killed; its cost is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from adapters.toolkit.metering import Metered
from adapters.toolkit.wire import Notice
from ops.gateway.tokens import Bearer


class Ending(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"  # to its end, even if that was an error's
    DRAINED = "drained"  # to its end, which its agent no longer received
    CUT = "cut"  # by the API, or the way to it
    CLOSED = "closed"  # by the gateway, since its agent had left
    STOPPED = "stopped"  # by the gateway, which was told to stop
    NOT_SENT = "not_sent"  # the API could not be reached, and has billed nothing


@dataclass(frozen=True, slots=True)
class Opening:
    """A request that is about to be sent."""

    bearer: Bearer
    provider: str
    model: str  # as requested; "" if it names none
    path: str
    peer: str  # the address that it came from
    metered: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """A request that may be sent."""

    note_id: int
    key: str  # the account's
    base_url: str  # of the account's API, without a slash at the end


@dataclass(frozen=True, slots=True)
class Denied:
    """A request that is refused: its attempt has ended, its money is spent, its account is limited."""

    status: int
    message: str  # for people


@dataclass(frozen=True, slots=True)
class Closing:
    """What has become of a request."""

    ending: Ending
    status: int | None  # of HTTP; None: there was no answer
    request_id: str  # the API's, from the answer's headers
    metered: Metered
    first_byte_s: float | None  # seconds from the opening of the note


class Notebook(Protocol):
    """Where notes are kept."""

    async def open(self, opening: Opening) -> Opened | Denied:
        """Write a note and return it once it is safe, or say why not.

        The account must be one of the provider's: its key must not be sent to another company.
        """
        ...

    async def close(self, note_id: int, closing: Closing) -> None:
        """Close a note. Errors are for it to handle: it repeats until the note is closed."""
        ...

    async def notice(self, account: str, notice: Notice) -> None:
        """Take note of an account's state."""
        ...

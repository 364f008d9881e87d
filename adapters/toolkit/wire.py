"""What the gateway has to know of a model's API: its paths, its credential, its limits, and how it says no."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Protocol

from adapters.toolkit.metering import Meter, Share

_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)", re.ASCII)
_LONGEST = 40  # characters


@dataclass(frozen=True, slots=True)
class Call:
    """A request that an agent may make."""

    metered: bool  # False: it costs nothing
    model: str = ""  # if the path names it


class AccountState(StrEnum):
    """Why no further request of an account will be answered."""

    LIMITED = "limited"  # until a limit on requests or tokens is reset
    EXHAUSTED = "exhausted"  # no credit is left
    KEY_REFUSED = "key_refused"


@dataclass(frozen=True, slots=True)
class Notice:
    """What an answer says about its account."""

    state: AccountState
    wait_s: float | None = None  # seconds until the limit is reset
    resets_at: float | None = None  # the same as Unix time in seconds; None, both of them: unknown


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in place of the API's."""

    status: int
    body: bytes  # JSON


class Wire(Protocol):
    """One API. Paths and header names are as HTTP has them; header names are in lower case."""

    def call(self, method: str, path: str, query: str) -> Call | None:
        """Return the request that this is; None: nothing that an agent needs, and it is refused.

        `query`: without its question mark.
        """
        ...

    def objection(self, body: bytes) -> str | None:
        """Return why a metered request must not be forwarded, for people: its cost would not be in its answer."""
        ...

    def credential(self, headers: Mapping[str, str]) -> str | None:
        """Return the credential that a client has sent."""
        ...

    @property
    def credential_headers(self) -> tuple[str, ...]:
        """Return the headers that are not forwarded; the first one is for a key."""
        ...

    def key_header(self, key: str) -> str:
        """Return the value of the first of these headers for a key."""
        ...

    def meter(self, model: str, *, streamed: bool) -> Meter:
        """Return the meter of a metered call's answer; `model` stands where the answer names none."""
        ...

    def notice(self, headers: Mapping[str, str], status: int, body: bytes) -> Notice | None:
        """Return what an answer other than 2xx says about the account; None: nothing."""
        ...

    def refusal(self, status: int, message: str) -> Refusal:
        """Return an error in the API's own format."""
        ...

    def cost_usd(self, share: Share) -> float | None:
        """Return the cost in US dollars; None if unknown."""
        ...


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the token of `authorization: Bearer TOKEN`."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def retry_after(headers: Mapping[str, str]) -> Notice:
    """Return the limit of an answer with status 429. See RFC 9110, section 10.2.3."""
    value = headers.get("retry-after", "")
    if (seconds := duration_s(value)) is not None:
        return Notice(AccountState.LIMITED, wait_s=seconds)
    try:
        return Notice(AccountState.LIMITED, resets_at=parsedate_to_datetime(value).timestamp())
    except (ValueError, OverflowError):
        return Notice(AccountState.LIMITED)


def duration_s(value: str) -> float | None:
    """Return the seconds of a duration such as `7`, `1.5s` or `6m0s`; None if it is none."""
    if _SECONDS.fullmatch(value):
        return float(value)
    if not 0 < len(value) <= _LONGEST or _PART.sub("", value):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(value))

"""Anthropic's Messages API, as Claude Code uses it.

Sources: the API's reference (messages, streaming, errors, rate limits), and what Claude Code 2.1.330 reads of an
answer. Its counts in a stream are running totals; those of `message_start` hold until a later event has others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

import orjson

from adapters.claude_code import prices
from adapters.claude_code.tokens import long_lived_cache, read_tokens
from adapters.toolkit.json_fields import count, optional_string, string
from adapters.toolkit.json_lines import Record, decode
from adapters.toolkit.metering import Meter, Metered, Share
from adapters.toolkit.wire import AccountState, Call, Notice, Refusal, bearer, retry_after

_CALLS = {
    ("POST", "/v1/messages"): Call(metered=True),
    ("POST", "/v1/messages/count_tokens"): Call(metered=False),
    ("GET", "/v1/models"): Call(metered=False),
    ("HEAD", "/"): Call(metered=False),  # asks whether the API can be reached
}
_MODEL = re.compile(r"/v1/models/[A-Za-z0-9][\w.:@-]*", re.ASCII)
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_BESIDE = ("advisor_message", "compaction")  # iterations whose usage is not part of the message's own
_FALLBACK = "fallback_message"  # an iteration by another model, after the first one had refused
_WEB_SEARCH_USD = 0.01
_US_ONLY = 1.1  # the factor on all prices for inference in the United States alone


class MessageReader:
    """Reader of one message, streamed or whole."""

    marks = (b'"usage"', b'"error"')

    def __init__(self, model: str) -> None:
        self._model = model
        self._usage: Record = {}
        self._answer_id = ""
        self._error = ""
        self._stop_reason: str | None = None

    def read(self, record: Record) -> None:
        """Read an event, or the message."""
        match record.get("type"):
            case "message_start":
                self._begin(record["message"])
            case "message":
                self._begin(record)
                self._stop_reason = string(record["stop_reason"])
            case "message_delta":
                self._count(record["usage"])
                self._stop_reason = optional_string(record["delta"].get("stop_reason"))
            case "error":
                self._error = string(record["error"]["type"])

    def metered(self) -> Metered:
        """Return the usage of each model."""
        shares = tuple(_shares(self._model, self._usage, self._stop_reason)) if self._usage else ()
        return Metered(shares, self._stop_reason is not None, self._answer_id, self._error)

    def _begin(self, message: Record) -> None:
        self._model = optional_string(message.get("model")) or self._model
        self._answer_id = optional_string(message.get("id")) or ""
        self._count(message["usage"])

    def _count(self, usage: Record) -> None:
        # Totals do not fall: a count that is missing, null or 0 is that of an earlier event.
        counted = self._usage | {name: value for name, value in usage.items() if value}
        tuple(_shares(self._model, counted, None))  # raises if it is not understood
        self._usage = counted


def _shares(model: str, usage: Record, stop_reason: str | None) -> Iterator[Share]:
    """Yield what each model has used. Raise ValueError, TypeError or AttributeError if it is not understood.

    As Claude Code 2.1.330 reads it: if another model took over, its iterations are billed, except a last one that
    refused, too.
    """
    surcharge = _surcharge(usage)
    searches = count((usage.get("server_tool_use") or {}).get("web_search_requests") or 0)
    parts = usage.get("iterations") or ()
    fallbacks = [part for part in parts if part.get("type") == _FALLBACK]
    served = fallbacks[:-1] if fallbacks and stop_reason == "refusal" else fallbacks
    beside = [part for part in parts if part.get("type") in _BESIDE]
    for part in [*(served if fallbacks else [usage]), *beside]:
        share = Share(part.get("model") or model, read_tokens(part), long_lived_cache(part), searches, surcharge)
        if not 0 <= share.long_lived_cache <= share.tokens.cache_creation_input_tokens:
            raise ValueError("more tokens are kept for an hour than were written to the cache")
        yield share
        searches = 0


def _surcharge(usage: Record) -> str:
    """Return why the tokens have other prices; the API names both only where they differ from the usual."""
    tier, speed, place = usage.get("service_tier"), usage.get("speed"), usage.get("inference_geo")
    if tier not in (None, "", "standard"):
        return string(tier)
    if speed not in (None, "", "standard"):
        return string(speed)
    return "us" if place == "us" else ""


class AnthropicWire:
    """Anthropic's API; see `adapters.toolkit.wire.Wire`."""

    credential_headers = ("x-api-key", "authorization")

    def call(self, method: str, path: str, query: str) -> Call | None:
        """Return the request: messages, their token count, models."""
        if method == "GET" and _MODEL.fullmatch(path):
            return Call(metered=False)
        return _CALLS.get((method, path))

    def objection(self, body: bytes) -> str | None:
        """Return None: each answer has its cost."""
        return None

    def credential(self, headers: Mapping[str, str]) -> str | None:
        """Return the API key, or the bearer token."""
        return headers.get("x-api-key") or bearer(headers)

    def key_header(self, key: str) -> str:
        """Return the value of the header for this key."""
        return key

    def meter(self, model: str, *, streamed: bool) -> Meter:
        """Return the meter of a message."""
        return Meter(MessageReader(model), streamed=streamed)

    def notice(self, headers: Mapping[str, str], status: int, body: bytes) -> Notice | None:
        """Return the account's state: rate limits name the time of their reset."""
        kind, message = _error(body)
        if status == 402 or kind == "billing_error" or "credit balance is too low" in message:
            return Notice(AccountState.EXHAUSTED)
        if status == 401:
            return Notice(AccountState.KEY_REFUSED)
        if status != 429:
            return None
        limit = retry_after(headers)
        return limit if (limit.wait_s, limit.resets_at) != (None, None) else _reset(headers)

    def refusal(self, status: int, message: str) -> Refusal:
        """Return an error as the API reports it."""
        error = {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}
        return Refusal(status, orjson.dumps({"type": "error", "error": error}))

    def cost_usd(self, share: Share) -> float | None:
        """Return the cost; None for an unknown model, and for tiers and speeds with prices of their own."""
        if share.surcharge not in ("", "us"):
            return None
        cost = prices.cost_usd(share.model, share.tokens, share.long_lived_cache)
        factor = _US_ONLY if share.surcharge else 1.0
        return None if cost is None else cost * factor + share.web_searches * _WEB_SEARCH_USD


def _error(body: bytes) -> tuple[str, str]:
    """Return type and message of an error's body; empty if it is not understood."""
    try:
        error = decode(body)["error"]
        return string(error["type"]), string(error["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def _reset(headers: Mapping[str, str]) -> Notice:
    """Return the latest reset of the limits that are used up."""
    told = {name.lower(): value for name, value in headers.items()}
    resets = [
        at
        for name, value in told.items()
        if name.startswith("anthropic-ratelimit-")
        and name.endswith("-reset")
        and told.get(name.removesuffix("reset") + "remaining", "0") == "0"
        and (at := _unix_time(value)) is not None
    ]
    return Notice(AccountState.LIMITED, resets_at=max(resets, default=None))


def _unix_time(value: str) -> float | None:
    """Return the Unix time of a reset: in seconds, or as in RFC 3339."""
    try:
        return float(value) if re.fullmatch(r"\d{1,11}", value) else datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return None

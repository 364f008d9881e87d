"""OpenAI's Responses API, as Codex uses it.

Sources: the API's reference (responses, streaming events, errors, rate limits).
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from adapters.codex.tokens import UNKNOWN_MODEL
from adapters.prices import PriceTable
from adapters.toolkit.json_fields import count, optional_string
from adapters.toolkit.json_lines import Record, decode
from adapters.toolkit.metering import Meter, Metered, Share
from adapters.toolkit.wire import AccountState, Call, Notice, Refusal, bearer, duration_s, retry_after
from adapters.usage import Tokens

_CALLS = {
    ("POST", "/v1/responses"): Call(metered=True),
    ("POST", "/v1/responses/compact"): Call(metered=True),  # makes a conversation shorter (0.128.0)
    ("GET", "/v1/models"): Call(metered=False),
}
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_EXHAUSTED = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")


class ResponseReader:
    """Reader of one response, streamed or whole."""

    marks = (b'"response.created"', b'"usage"', b'"error"')

    def __init__(self, model: str) -> None:
        self._model = model or UNKNOWN_MODEL
        self._share: Share | None = None
        self._answer_id = ""
        self._error = ""

    def read(self, record: Record) -> None:
        """Read an event, or the response."""
        kind = record.get("type")
        if kind == "error":
            self._fail(record.get("error") or record)
        elif kind is None or kind in _ENDS or kind == "response.created":
            self._response(record if kind is None else record["response"])

    def metered(self) -> Metered:
        """Return the usage; it is reported once, at the end."""
        shares = (self._share,) if self._share else ()
        return Metered(shares, self._share is not None, self._answer_id, self._error)

    def _response(self, response: Record) -> None:
        self._model = optional_string(response.get("model")) or self._model
        self._answer_id = optional_string(response.get("id")) or self._answer_id
        if (error := response.get("error")) is not None:
            self._fail(error)
        if (usage := response.get("usage")) is not None:
            self._share = Share(self._model, _tokens(usage), 0, _searches(response), _surcharge(response))

    def _fail(self, error: Record) -> None:
        self._error = str(error.get("code") or error.get("type") or "error")


def _tokens(usage: Record) -> Tokens:
    """Return the tokens: cached ones are part of the input, and reasoning is part of the output."""
    details = usage.get("input_tokens_details") or {}
    read, written = count(details.get("cached_tokens") or 0), count(details.get("cache_write_tokens") or 0)
    fresh, output = count(usage["input_tokens"]) - read - written, count(usage["output_tokens"])
    if min(fresh, output, read, written) < 0:
        raise ValueError("not a token count")
    return Tokens(fresh, output, read, written)


def _searches(response: Record) -> int:
    """Return the number of web searches, which are billed by the call; opening a page is not one."""
    items = response.get("output") or ()
    return sum(
        item.get("type") == "web_search_call" and (item.get("action") or {}).get("type", "search") == "search"
        for item in items
    )


def _surcharge(response: Record) -> str:
    tier = response.get("service_tier")
    return "" if tier in (None, "auto", "default") else str(tier)


class OpenAiWire:
    """OpenAI's API; see `adapters.toolkit.wire.Wire`."""

    credential_headers = ("authorization",)

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices

    def call(self, method: str, path: str, query: str) -> Call | None:
        """Return the request: responses, models."""
        return _CALLS.get((method, path))

    def objection(self, body: bytes) -> str | None:
        """Return why a response in the background is refused: it is billed after its answer."""
        if b'"background"' not in body:
            return None
        try:
            background = decode(body).get("background")
        except (ValueError, AttributeError, RecursionError):
            return None
        return "the gateway does not forward responses in the background" if background else None

    def credential(self, headers: Mapping[str, str]) -> str | None:
        """Return the bearer token."""
        return bearer(headers)

    def key_header(self, key: str) -> str:
        """Return the value of the header for this key."""
        return f"Bearer {key}"

    def meter(self, model: str, *, streamed: bool) -> Meter:
        """Return the meter of a response."""
        return Meter(ResponseReader(model), streamed=streamed)

    def notice(self, headers: Mapping[str, str], status: int, body: bytes) -> Notice | None:
        """Return the account's state: a quota that is used up has status 429, too."""
        if _code(body) in _EXHAUSTED:
            return Notice(AccountState.EXHAUSTED)
        if status == 401:
            return Notice(AccountState.KEY_REFUSED)
        if status != 429:
            return None
        limit = retry_after(headers)
        return limit if (limit.wait_s, limit.resets_at) != (None, None) else _reset(headers)

    def refusal(self, status: int, message: str) -> Refusal:
        """Return an error as the API reports it."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": None, "code": None}
        return Refusal(status, orjson.dumps({"error": error}))

    def cost_usd(self, share: Share) -> float | None:
        """Return the cost; None for an unknown price, other tiers, and web searches."""
        if share.surcharge or share.web_searches:
            return None
        return self._prices.request_cost_usd(share.model, share.tokens)


def _code(body: bytes) -> str:
    """Return the code, or else the type, of an error's body; empty if it is not understood."""
    try:
        error = decode(body)["error"]
        return str(error.get("code") or error.get("type") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""


def _reset(headers: Mapping[str, str]) -> Notice:
    """Return the longest wait for a limit that is used up."""
    waits = [
        wait
        for what in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{what}") == "0"
        and (wait := duration_s(headers.get(f"x-ratelimit-reset-{what}", ""))) is not None
    ]
    return Notice(AccountState.LIMITED, wait_s=max(waits, default=None))

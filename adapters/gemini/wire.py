"""The Gemini API, as the Gemini CLI uses it.

Sources: the API's reference (generateContent, UsageMetadata, errors) and google.rpc's error details.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import orjson

from adapters.gemini.tokens import count
from adapters.prices import PriceTable
from adapters.toolkit.json_fields import optional_string
from adapters.toolkit.json_lines import Record, decode
from adapters.toolkit.metering import Meter, Metered, Share
from adapters.toolkit.wire import AccountState, Call, Notice, Refusal, duration_s, retry_after
from adapters.usage import Tokens

_GENERATES = ("generateContent", "streamGenerateContent")
_CALL = re.compile(r"/v1(?:beta)?/models/(?P<model>[A-Za-z0-9][\w.-]*):(?P<method>\w+)", re.ASCII)
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_KEY_REASONS = ("API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "CONSUMER_SUSPENDED")
_NO_CREDIT = ("credits are depleted", "BILLING_DISABLED")


class ContentReader:
    """Reader of generated content: the chunks of a stream, each with the usage up to it, or one object."""

    marks = (b'"usageMetadata"', b'"finishReason"', b'"blockReason"', b'"error"')

    def __init__(self, model: str) -> None:
        self._model = model
        self._tokens: Tokens | None = None
        self._searches = 0
        self._finished = False
        self._answer_id = ""
        self._error = ""

    def read(self, record: Record) -> None:
        """Read a chunk."""
        if (error := record.get("error")) is not None:
            self._error = str(error.get("status") or error["code"])
            return
        self._model = optional_string(record.get("modelVersion")) or self._model
        self._answer_id = optional_string(record.get("responseId")) or self._answer_id
        candidates = record.get("candidates") or ()
        blocked = (record.get("promptFeedback") or {}).get("blockReason")
        self._finished |= blocked is not None or any(each.get("finishReason") for each in candidates)
        for candidate in candidates:
            self._searches += len((candidate.get("groundingMetadata") or {}).get("webSearchQueries") or ())
        if (usage := record.get("usageMetadata")) is not None:
            self._tokens = _tokens(usage)

    def metered(self) -> Metered:
        """Return the usage of the last chunk that had one."""
        shares = () if self._tokens is None else (Share(self._model, self._tokens, 0, self._searches),)
        return Metered(shares, self._finished and bool(shares), self._answer_id, self._error)


def _tokens(usage: Record) -> Tokens:
    """Return the tokens: cached ones are part of the prompt, and thoughts are billed as output."""
    prompt, cached = count(usage.get("promptTokenCount")), count(usage.get("cachedContentTokenCount"))
    tools = count(usage.get("toolUsePromptTokenCount"))
    output = count(usage.get("candidatesTokenCount")) + count(usage.get("thoughtsTokenCount"))
    return Tokens(max(prompt + tools - cached, 0), output, cached)


class GeminiWire:
    """The Gemini API; see `adapters.toolkit.wire.Wire`."""

    provider = "gemini"
    credential_headers = ("x-goog-api-key", "authorization")

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices

    def call(self, method: str, path: str) -> Call | None:
        """Return the request: generated content, or the count of its tokens."""
        called = _CALL.fullmatch(path)
        if called is None or method != "POST":
            return None
        if called["method"] in _GENERATES:
            return Call(metered=True, model=called["model"])
        return Call(metered=False, model=called["model"]) if called["method"] == "countTokens" else None

    def credential(self, headers: Mapping[str, str]) -> str | None:
        """Return the API key."""
        return headers.get("x-goog-api-key")

    def key_header(self, key: str) -> str:
        """Return the value of the header for this key."""
        return key

    def meter(self, model: str, *, streamed: bool) -> Meter:
        """Return the meter of generated content."""
        return Meter(ContentReader(model), streamed=streamed)

    def notice(self, headers: Mapping[str, str], status: int, body: bytes) -> Notice | None:
        """Return the account's state: the API's errors name their reasons and waits in `details`."""
        text, details = body.decode(errors="replace"), list(_details(body))
        if any(words in text for words in _NO_CREDIT):
            return Notice(AccountState.EXHAUSTED)
        if status == 401 or any(detail.get("reason") in _KEY_REASONS for detail in details):
            return Notice(AccountState.KEY_REFUSED)
        if status != 429:
            return None
        waits = [wait for each in details if (wait := duration_s(str(each.get("retryDelay")))) is not None]
        return Notice(AccountState.LIMITED, wait_s=max(waits)) if waits else retry_after(headers)

    def refusal(self, status: int, message: str) -> Refusal:
        """Return an error as the API reports it."""
        error = {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}
        return Refusal(status, orjson.dumps({"error": error}))

    def cost_usd(self, share: Share) -> float | None:
        """Return the cost; None for an unknown price, and for web searches."""
        return None if share.web_searches else self._prices.request_cost_usd(share.model, share.tokens)


def _details(body: bytes) -> Iterator[Record]:
    """Yield the details of an error's body; a stream's error may be in an array."""
    try:
        decoded = decode(body)
        error = (decoded[0] if isinstance(decoded, list) else decoded)["error"]
        yield from (detail for detail in error.get("details") or () if isinstance(detail, dict))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return

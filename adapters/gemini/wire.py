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
_COUNTS = (
    "promptTokenCount",
    "cachedContentTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
)
_KEY_REASONS = ("API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "CONSUMER_SUSPENDED")
_NO_CREDIT = ("credits are depleted", "BILLING_DISABLED")


class ContentReader:
    """Reader of generated content: the chunks of a stream, each with the usage up to it, or one object."""

    marks = (b'"usageMetadata"', b'"finishReason"', b'"blockReason"', b'"error"')

    def __init__(self, model: str) -> None:
        self._model = model
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._counted = False
        self._searches = 0
        self._unfinished: set[object] = set()  # candidates
        self._finished = False  # any candidate, or a prompt that was blocked
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
        self._finished |= blocked is not None
        for candidate in candidates:
            self._finish(candidate.get("index", 0), candidate.get("finishReason"))
            self._searches += len((candidate.get("groundingMetadata") or {}).get("webSearchQueries") or ())
        if (usage := record.get("usageMetadata")) is not None:
            # Totals do not fall: a count that is missing is that of an earlier chunk.
            self._counts = {name: max(count(usage.get(name)), known) for name, known in self._counts.items()}
            self._counted = True

    def metered(self) -> Metered:
        """Return the usage, with the greatest of each count."""
        tokens = _tokens(self._counts)
        shares = (Share(self._model, tokens, 0, self._searches),) if self._counted else ()
        ended = self._finished and not self._unfinished
        return Metered(shares, ended and bool(shares), self._answer_id, self._error)

    def _finish(self, candidate: int, reason: str | None) -> None:
        if reason:
            self._unfinished.discard(candidate)
            self._finished = True
        else:
            self._unfinished.add(candidate)


def _tokens(counts: Mapping[str, int]) -> Tokens:
    """Return the tokens: cached ones are part of the prompt, and thoughts are billed as output."""
    prompt = counts["promptTokenCount"] + counts["toolUsePromptTokenCount"]
    output = counts["candidatesTokenCount"] + counts["thoughtsTokenCount"]
    cached = counts["cachedContentTokenCount"]
    return Tokens(max(prompt - cached, 0), output, cached)


class GeminiWire:
    """The Gemini API; see `adapters.toolkit.wire.Wire`."""

    credential_headers = ("x-goog-api-key", "authorization", "x-goog-fieldmask")

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices

    def call(self, method: str, path: str, query: str) -> Call | None:
        """Return the request: generated content, or the count of its tokens.

        Other parameters than `alt` could take the usage out of the answer.
        """
        called = _CALL.fullmatch(path)
        if called is None or method != "POST" or query not in ("", "alt=sse"):
            return None
        if called["method"] in _GENERATES:
            return Call(metered=True, model=called["model"])
        return Call(metered=False, model=called["model"]) if called["method"] == "countTokens" else None

    def objection(self, body: bytes) -> str | None:
        """Return None: each answer has its cost."""
        return None

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

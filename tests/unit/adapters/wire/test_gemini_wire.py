"""The Gemini API: what generated content costs, what an error says about the account, how the gateway refuses."""

from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.gemini.wire import GeminiWire
from adapters.prices import PriceTable
from adapters.toolkit.metering import Metered, Share
from adapters.toolkit.wire import AccountState, Call, Notice
from adapters.usage import Tokens

from .answers import Event, metered, pieces, stream, whole

MODEL = "gemini-test"
PRICES = """
[[price]]
model = "gemini-test"
input = 2.0
output = 12.0
cache_read = 0.2
source = "none"
checked = 2026-11-24
"""
WIRE = GeminiWire(PriceTable.parse(PRICES, lambda: date(2026, 11, 24)))


def chunk(*parts: Event, usage: Event | None = None, **fields: object) -> Event:
    candidate: Event = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    finish = fields.pop("finish", None)
    candidates = [candidate | ({"finishReason": finish} if finish else {})]
    told: Event = {} if usage is None else {"usageMetadata": usage}
    return {"candidates": candidates, "modelVersion": MODEL, "responseId": "r1", **told, **fields}


EARLY: Event = {"promptTokenCount": 1000, "totalTokenCount": 1000}
USAGE: Event = {
    "promptTokenCount": 1000,
    "cachedContentTokenCount": 600,
    "toolUsePromptTokenCount": 50,
    "candidatesTokenCount": 40,
    "thoughtsTokenCount": 70,
    "totalTokenCount": 1160,
    "promptTokensDetails": [{"modality": "IMAGE", "tokenCount": 258}],
}
ANSWER = [
    chunk({"text": 'the "usageMetadata"', "thought": True}, usage=EARLY),
    chunk({"text": "hel"}, usage=EARLY | {"candidatesTokenCount": 1}),
    chunk({"functionCall": {"name": "shell", "args": {}}}, usage=USAGE, finish="STOP"),
]
COST = Metered((Share(MODEL, Tokens(450, 110, 600)),), True, "r1")


@given(cuts=st.lists(st.integers(min_value=0, max_value=5000), max_size=10))
def test_content_costs_what_its_last_chunk_says_however_it_is_cut(cuts: list[int]) -> None:
    assert metered(WIRE, pieces(stream(ANSWER, named=False, line_end="\r\n"), cuts)) == COST


def test_content_in_one_piece_and_a_stream_that_is_an_array_cost_the_same() -> None:
    assert whole(WIRE, ANSWER[-1]) == COST
    assert whole(WIRE, ANSWER) == COST


def test_content_that_breaks_off_has_an_incomplete_cost() -> None:
    read = metered(WIRE, [stream(ANSWER[:2], named=False)])
    assert (read.tokens, read.complete) == (Tokens(1000, 1), False)


def test_prompt_that_is_blocked_is_billed_as_told() -> None:
    blocked: Event = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": EARLY, "modelVersion": MODEL}
    read = metered(WIRE, [stream([blocked], named=False)])
    assert (read.tokens, read.complete) == (Tokens(1000), True)


def test_error_in_a_stream_is_told() -> None:
    failure: Event = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}
    read = metered(WIRE, [stream([*ANSWER[:2], failure], named=False)])
    assert (read.error, read.complete) == ("UNAVAILABLE", False)


@pytest.mark.parametrize(
    "usage",
    [
        {"promptTokenCount": -1},
        {"promptTokenCount": 1.5},
        {"candidatesTokenCount": "9"},
        {"thoughtsTokenCount": 2**60},
        3,
    ],
)
def test_usage_that_is_not_understood_leaves_the_cost_incomplete(usage: object) -> None:
    last: Event = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    read = metered(WIRE, [stream([*ANSWER[:2], last], named=False)])
    assert (read.tokens, read.complete) == (Tokens(1000, 1), False)


def test_cost_is_that_of_the_price_table_and_unknown_with_web_searches() -> None:
    assert WIRE.cost_usd(COST.shares[0]) == pytest.approx((450 * 2 + 110 * 12 + 600 * 0.2) / 1e6)
    assert WIRE.cost_usd(Share("gemini-unheard-of", Tokens(1))) is None
    grounded = chunk(usage=USAGE, finish="STOP")
    grounded["candidates"] = [{"finishReason": "STOP", "groundingMetadata": {"webSearchQueries": ["a", "b"]}}]
    (share,) = whole(WIRE, grounded).shares
    assert (share.web_searches, WIRE.cost_usd(share)) == (2, None)


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        (
            "POST",
            "/v1beta/models/gemini-3.1-pro:streamGenerateContent",
            Call(metered=True, model="gemini-3.1-pro"),
        ),
        ("POST", "/v1/models/gemini-3.1-pro:generateContent", Call(metered=True, model="gemini-3.1-pro")),
        ("POST", "/v1beta/models/gemini-3.1-pro:countTokens", Call(metered=False, model="gemini-3.1-pro")),
        ("POST", "/v1beta/models/gemini-3.1-pro:batchGenerateContent", None),
        ("POST", "/v1beta/models/gemini-3.1-pro:predictLongRunning", None),
        ("GET", "/v1beta/models/gemini-3.1-pro:generateContent", None),
        ("POST", "/v1beta/models/..:generateContent", None),
        ("POST", "/v1beta/models/a/b:generateContent", None),
        ("POST", "/v1beta/cachedContents", None),
        ("POST", "/upload/v1beta/files", None),
    ],
)
def test_only_what_agents_need_is_forwarded(method: str, path: str, call: Call | None) -> None:
    assert WIRE.call(method, path, "") == call


@pytest.mark.parametrize(
    ("query", "forwarded"),
    [("alt=sse", True), ("", True), ("fields=candidates", False), ("alt=sse&$fields=x", False), ("key=k", False)],
)
def test_parameters_that_could_hide_the_usage_are_not_forwarded(query: str, forwarded: bool) -> None:
    call = WIRE.call("POST", "/v1beta/models/gemini-3.1-pro:streamGenerateContent", query)
    assert (call is not None) is forwarded
    assert "x-goog-fieldmask" in WIRE.credential_headers


def test_counts_of_a_later_chunk_that_are_missing_are_those_of_an_earlier_one() -> None:
    last: Event = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1000}}
    read = metered(WIRE, [stream([chunk(usage=USAGE), last], named=False)])
    assert (read.tokens, read.complete) == (COST.tokens, True)


def test_content_is_complete_once_all_candidates_have_finished() -> None:
    two: list[Event] = [
        {"candidates": [{"index": 0, "finishReason": "STOP"}, {"index": 1}], "usageMetadata": USAGE},
        {"candidates": [{"index": 1, "finishReason": "STOP"}], "usageMetadata": USAGE},
    ]
    assert not metered(WIRE, [stream(two[:1], named=False)]).complete
    assert metered(WIRE, [stream(two, named=False)]).complete


def test_credential_is_replaced() -> None:
    sent = {"x-goog-api-key": "one", "authorization": "Bearer two", "x-goog-api-client": "c"}
    assert WIRE.credential(sent) == "one"
    assert WIRE.credential({"authorization": "Bearer two"}) is None
    assert sent.keys() - WIRE.credential_headers == {"x-goog-api-client"}
    assert (WIRE.credential_headers[0], WIRE.key_header("real")) == ("x-goog-api-key", "real")


def error(code: int, message: str = "no", *details: Event) -> Event:
    return {"error": {"code": code, "message": message, "status": "X", "details": list(details)}}


RETRY: Event = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
REASON: Event = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "notice"),
    [
        (429, {}, error(429, "slow", RETRY), Notice(AccountState.LIMITED, wait_s=34.07)),
        (429, {}, [error(429, "slow", RETRY)], Notice(AccountState.LIMITED, wait_s=34.07)),
        (429, {"retry-after": "3"}, error(429), Notice(AccountState.LIMITED, wait_s=3)),
        (429, {}, "text", Notice(AccountState.LIMITED)),
        (429, {}, error(429, "Your prepayment credits are depleted."), Notice(AccountState.EXHAUSTED)),
        (400, {}, error(400, "API key not valid.", REASON), Notice(AccountState.KEY_REFUSED)),
        (401, {}, [], Notice(AccountState.KEY_REFUSED)),
        (403, {}, error(403, "permission"), None),
        (400, {}, {"error": {"details": 7}}, None),
        (503, {}, error(503), None),
    ],
)
def test_errors_tell_the_state_of_the_account(
    status: int, headers: dict[str, str], body: object, notice: Notice | None
) -> None:
    assert WIRE.notice(headers, status, json.dumps(body).encode()) == notice


def test_refusal_looks_like_the_apis_own() -> None:
    refusal = WIRE.refusal(400, "the budget is used up")
    assert json.loads(refusal.body) == {
        "error": {"code": 400, "message": "the budget is used up", "status": "INVALID_ARGUMENT"}
    }

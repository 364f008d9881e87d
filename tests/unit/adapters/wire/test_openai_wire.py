"""OpenAI's API: what a response costs, what an error says about the account, how the gateway refuses."""

from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.codex.wire import OpenAiWire
from adapters.prices import PriceTable
from adapters.toolkit.metering import Metered, Share
from adapters.toolkit.wire import AccountState, Call, Notice
from adapters.usage import Tokens

from .answers import Event, metered, pieces, stream, whole

WIRE = OpenAiWire(PriceTable.builtin(lambda: date(2026, 11, 24)))
SOL = "gpt-6.1-sol"
USAGE: Event = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
    "output_tokens": 90,
    "output_tokens_details": {"reasoning_tokens": 64},
    "total_tokens": 1090,
}
CREATED: Event = {"type": "response.created", "response": {"id": "resp_1", "model": SOL, "usage": None}}
REASONING: Event = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"}
CALL: Event = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "exec",
    "arguments": '{"usage":1}',
}


def response(status: str = "completed", **fields: object) -> Event:
    whole = {"id": "resp_1", "object": "response", "model": SOL, "status": status, "error": None, "usage": USAGE}
    return {**whole, "output": [REASONING, CALL], "service_tier": "default", **fields}


def end(status: str = "completed", **fields: object) -> Event:
    return {"type": f"response.{status}", "response": response(status, **fields)}


BODY: list[Event] = [
    CREATED,
    {"type": "response.output_text.delta", "delta": 'the "usage" of "error"'},
    {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
    {"type": "response.output_item.done", "output_index": 1, "item": CALL},
]
COST = Metered((Share(SOL, Tokens(300, 90, 600, 100)),), True, "resp_1")


@given(cuts=st.lists(st.integers(min_value=0, max_value=5000), max_size=10))
def test_response_costs_what_its_end_says_however_it_is_cut(cuts: list[int]) -> None:
    assert metered(WIRE, pieces(stream([*BODY, end()]), cuts)) == COST


def test_response_in_one_piece_and_a_compaction_cost_what_they_say() -> None:
    assert whole(WIRE, response()) == COST
    compaction = {"id": "resp_1", "object": "response.compaction", "usage": USAGE, "output": []}
    assert whole(WIRE, compaction, SOL) == COST


def test_response_that_reached_its_limit_is_billed() -> None:
    assert (
        metered(WIRE, [stream([*BODY, end("incomplete", incomplete_details={"reason": "max_output_tokens"})])])
        == COST
    )


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (
            end("failed", usage=None, error={"code": "rate_limit_exceeded", "message": "slow"}),
            "rate_limit_exceeded",
        ),
        ({"type": "error", "code": "server_error", "message": "no", "param": None}, "server_error"),
        ({"type": "error", "error": {"type": "invalid_request_error", "code": None}}, "invalid_request_error"),
        (end("failed", usage=None, error={}), "error"),
        ({"type": "response.queued"}, ""),
    ],
)
def test_response_without_an_end_has_no_known_cost(last: Event, error: str) -> None:
    read = metered(WIRE, [stream([*BODY, last])])
    assert (read.shares, read.complete, read.answer_id, read.error) == ((), False, "resp_1", error)


def test_failure_that_is_billed_has_a_known_cost() -> None:
    read = metered(WIRE, [stream([*BODY, end("failed", error={"code": "server_error"})])])
    assert (read.shares, read.complete, read.error) == (COST.shares, True, "server_error")


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 1, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 2}},
        {"input_tokens": 1},
        {"input_tokens": "many", "output_tokens": 1},
        {"input_tokens": 1, "output_tokens": -1},
        [],
    ],
)
def test_usage_that_is_not_understood_leaves_the_cost_unknown(usage: object) -> None:
    read = metered(WIRE, [stream([*BODY, end(usage=usage)])])
    assert (read.shares, read.complete) == ((), False)


def test_model_is_that_of_the_request_if_the_answer_names_none() -> None:
    last: Event = {"type": "response.completed", "response": {"id": "resp_1", "usage": USAGE}}
    assert metered(WIRE, [stream([last])], SOL) == COST
    (share,) = metered(WIRE, [stream([last])], "").shares
    assert share.model == "unknown"


def test_cost_is_that_of_the_price_table_unless_something_has_a_price_of_its_own() -> None:
    # USD per million: input 2, output 10, cache read 0.1, cache write 2.5
    assert WIRE.cost_usd(COST.shares[0]) == pytest.approx((300 * 2 + 90 * 10 + 600 * 0.1 + 100 * 2.5) / 1e6)
    long = Share(SOL, Tokens(300_000, 10))
    assert WIRE.cost_usd(long) == pytest.approx((300_000 * 4 + 10 * 15) / 1e6)
    for tier in ("flex", "priority"):
        (share,) = metered(WIRE, [stream([*BODY, end(service_tier=tier)])]).shares
        assert (share.surcharge, WIRE.cost_usd(share)) == (tier, None)
    calls = [{"type": "web_search_call", "action": {"type": kind}} for kind in ("search", "open_page", "search")]
    (share,) = metered(WIRE, [stream([*BODY, end(output=[*calls, {"type": "web_search_call"}])])]).shares
    assert (share.web_searches, WIRE.cost_usd(share)) == (3, None)


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("POST", "/v1/responses", Call(metered=True)),
        ("POST", "/v1/responses/compact", Call(metered=True)),
        ("GET", "/v1/models", Call(metered=False)),
        ("GET", "/v1/responses", None),
        ("GET", "/v1/responses/resp_1", None),
        ("POST", "/v1/batches", None),
        ("POST", "/v1/files", None),
        ("POST", "/v1/responses/../files", None),
    ],
)
def test_only_what_agents_need_is_forwarded(method: str, path: str, call: Call | None) -> None:
    assert WIRE.call(method, path, "") == call


@pytest.mark.parametrize(
    ("body", "objects"),
    [
        (b'{"model": "m", "background": true}', True),
        (b'{"model": "m", "background": false, "stream": true}', False),
        (b'{"tools": [{"background": true}], "input": "\\"background\\": true"}', False),
        (b'{"background": tru', False),
        (b'["background"]', False),
        (b"", False),
    ],
)
def test_response_in_the_background_is_refused(body: bytes, objects: bool) -> None:
    assert (WIRE.objection(body) is not None) is objects


def test_credential_is_replaced() -> None:
    sent = {"authorization": "Bearer one", "openai-beta": "b"}
    assert WIRE.credential(sent) == "one"
    assert WIRE.credential({}) is None
    assert sent.keys() - WIRE.credential_headers == {"openai-beta"}
    assert (WIRE.credential_headers[0], WIRE.key_header("real")) == ("authorization", "Bearer real")


def error(code: str | None, kind: str = "requests") -> bytes:
    return json.dumps({"error": {"message": "no", "type": kind, "param": None, "code": code}}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "notice"),
    [
        (429, {}, error("insufficient_quota"), Notice(AccountState.EXHAUSTED)),
        (429, {}, error(None, "insufficient_quota"), Notice(AccountState.EXHAUSTED)),
        (429, {"retry-after": "2"}, error("rate_limit_exceeded"), Notice(AccountState.LIMITED, wait_s=2)),
        (
            429,
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1m30.5s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "250ms",
            },
            error("rate_limit_exceeded"),
            Notice(AccountState.LIMITED, wait_s=90.5),
        ),
        (429, {"x-ratelimit-remaining-requests": "0"}, b"", Notice(AccountState.LIMITED)),
        (429, {}, b"[]", Notice(AccountState.LIMITED)),
        (401, {}, error("invalid_api_key"), Notice(AccountState.KEY_REFUSED)),
        (400, {}, error("context_length_exceeded"), None),
        (503, {}, b"", None),
    ],
)
def test_errors_tell_the_state_of_the_account(
    status: int, headers: dict[str, str], body: bytes, notice: Notice | None
) -> None:
    assert WIRE.notice(headers, status, body) == notice


def test_refusal_looks_like_the_apis_own() -> None:
    refusal = WIRE.refusal(400, "the budget is used up")
    assert refusal.status == 400
    assert json.loads(refusal.body)["error"] == {
        "message": "the budget is used up",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }

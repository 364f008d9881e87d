"""Anthropic's API: what a message costs, what an error says about the account, how the gateway refuses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.claude_code.wire import AnthropicWire
from adapters.toolkit.metering import Metered, Share
from adapters.toolkit.wire import AccountState, Call, Notice
from adapters.usage import Tokens

from .answers import Event, metered, pieces, stream, whole

WIRE = AnthropicWire()
SONNET, OPUS = "claude-sonnet-5-5", "claude-opus-5-5"
BEGUN: Event = {
    "input_tokens": 25,
    "cache_creation_input_tokens": 700,
    "cache_read_input_tokens": 9000,
    "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 500},
    "output_tokens": 1,
    "service_tier": "standard",
    "inference_geo": "global",
}


def start(**usage: object) -> Event:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": SONNET, "content": []}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": BEGUN | usage}}


def block(index: int, content: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def delta(output: int, stop_reason: str | None = "end_turn", **usage: object) -> Event:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason, "stop_sequence": None},
        "usage": {"output_tokens": output, **usage},
    }


THINKING = block(
    0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": 'the "usage" of "error"'},
    {"type": "signature_delta", "signature": "c2ln"},
)  # fmt: skip
TEXT = block(
    1, {"type": "text", "text": ""}, {"type": "text_delta", "text": 'say {"usage": {"output_tokens": 9}}'}
)
TOOL = block(
    2, {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}},
    {"type": "input_json_delta", "partial_json": '{"cmd"'}, {"type": "input_json_delta", "partial_json": ':1}'},
)  # fmt: skip
PING: Event = {"type": "ping"}
STOP: Event = {"type": "message_stop"}
ANSWER = [start(), PING, *THINKING, *TEXT, *TOOL, delta(321, "tool_use"), STOP]
COST = Metered((Share(SONNET, Tokens(25, 321, 9000, 700), 500),), True, "msg_1")


def test_answer_costs_what_its_last_counts_say() -> None:
    assert metered(WIRE, [stream(ANSWER)]) == COST


@given(cuts=st.lists(st.integers(min_value=0, max_value=5000), max_size=10), end=st.sampled_from(["\n", "\r\n"]))
def test_any_cut_of_the_stream_gives_the_same_cost(cuts: list[int], end: str) -> None:
    assert metered(WIRE, pieces(stream(ANSWER, line_end=end), cuts)) == COST


@given(length=st.integers(min_value=0, max_value=5000))
def test_answer_that_breaks_off_is_complete_only_after_its_last_counts(length: int) -> None:
    data = stream(ANSWER)
    final = data.index(b"event: message_stop")
    read = metered(WIRE, [data[:length]])
    assert read.complete == (length >= final)
    assert read.tokens in (Tokens(), Tokens(25, 1, 9000, 700), COST.tokens)


def test_message_in_one_piece_costs_the_same() -> None:
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": SONNET,
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
        "usage": BEGUN | {"output_tokens": 321},
    }  # fmt: skip
    assert whole(WIRE, message) == COST


def test_counts_of_a_later_event_replace_earlier_ones_unless_they_are_empty() -> None:
    last = delta(50, input_tokens=472, cache_read_input_tokens=0, cache_creation_input_tokens=None)
    read = metered(WIRE, [stream([start(input_tokens=0), delta(9, None), last, STOP])])
    assert read.tokens == Tokens(472, 50, 9000, 700)


def test_web_searches_are_billed_beside_tokens() -> None:
    searched = delta(50, server_tool_use={"web_search_requests": 3, "web_fetch_requests": 1})
    read = metered(WIRE, [stream([start(), searched, STOP])])
    (share,) = read.shares
    assert (share.web_searches, read.complete) == (3, True)
    plain = WIRE.cost_usd(Share(SONNET, share.tokens, 500))
    assert plain is not None
    assert WIRE.cost_usd(share) == pytest.approx(plain + 0.03)


def test_iterations_of_an_advisor_and_of_compaction_are_billed_in_addition() -> None:
    parts = [
        {"type": "message", "input_tokens": 20, "output_tokens": 100},
        {"type": "advisor_message", "model": OPUS, "input_tokens": 800, "output_tokens": 500},
        {"type": "compaction", "input_tokens": 60_000, "output_tokens": 900},
        {"type": "message", "input_tokens": 5, "output_tokens": 221},
    ]
    read = metered(WIRE, [stream([start(), delta(321, iterations=parts), STOP])])
    assert read.shares == (
        *COST.shares,
        Share(OPUS, Tokens(800, 500)),
        Share(SONNET, Tokens(60_000, 900)),
    )


@pytest.mark.parametrize(("stop_reason", "billed"), [("end_turn", 2), ("refusal", 1)])
def test_answer_of_another_model_is_billed_as_that_ones(stop_reason: str, billed: int) -> None:
    parts = [
        {"type": "message", "input_tokens": 25, "output_tokens": 1},
        {"type": "fallback_message", "model": OPUS, "input_tokens": 30, "output_tokens": 10},
        {"type": "fallback_message", "model": "claude-haiku-5-5", "input_tokens": 31, "output_tokens": 11},
    ]
    read = metered(WIRE, [stream([start(), delta(11, stop_reason, iterations=parts), STOP])])
    expected = (Share(OPUS, Tokens(30, 10)), Share("claude-haiku-5-5", Tokens(31, 11)))
    assert read.shares == expected[:billed]


@pytest.mark.parametrize(
    ("usage", "surcharge", "factor"),
    [
        ({"service_tier": "priority"}, "priority", None),
        ({"speed": "fast"}, "fast", None),
        ({"inference_geo": "us"}, "us", 1.1),
        ({"service_tier": None, "speed": "standard", "inference_geo": ""}, "", 1.0),
    ],
)
def test_other_prices_are_known_or_the_cost_is_unknown(usage: Event, surcharge: str, factor: float | None) -> None:
    (share,) = metered(WIRE, [stream([start(**usage), delta(321), STOP])]).shares
    usual, cost = WIRE.cost_usd(COST.shares[0]), WIRE.cost_usd(share)
    assert usual is not None
    assert share.surcharge == surcharge
    assert cost == (None if factor is None else pytest.approx(usual * factor))


def test_cost_depends_on_how_long_the_cache_is_kept_and_is_unknown_for_unknown_models() -> None:
    # USD per million: input 2, output 10, cache read 0.1; writes 1.25 and 2 times the input
    expected = (25 * 2 + 200 * 2.5 + 500 * 4 + 9000 * 0.1 + 321 * 10) / 1e6
    assert WIRE.cost_usd(COST.shares[0]) == pytest.approx(expected)
    assert WIRE.cost_usd(Share("claude-unheard-of", Tokens(1, 1))) is None


def test_error_in_a_stream_is_told_and_leaves_the_cost_incomplete() -> None:
    failure: Event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    read = metered(WIRE, [stream([start(), *TEXT, failure])])
    assert (read.error, read.complete, read.tokens) == ("overloaded_error", False, Tokens(25, 1, 9000, 700))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": -1}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": "9"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2**60}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9, "iterations": 3},
        },
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9, "iterations": ["x"]}},
        {"type": "message_delta", "delta": {}, "usage": {"cache_creation": {"ephemeral_1h_input_tokens": 701}}},
        {"type": "message_delta", "usage": []},
        {"type": "message_start", "message": {"usage": None}},
        {"type": "error", "error": "broken"},
    ],
)
def test_event_that_is_not_understood_leaves_the_cost_incomplete(event: Event) -> None:
    read = metered(WIRE, [stream([start(), event, delta(321), STOP])])
    assert not read.complete
    assert read.tokens == COST.tokens


@pytest.mark.parametrize(
    "data", [b"", b"<html>", b"null", b"[1]", b'{"type":"message"}', b"[" * 2000, b"\xff\xfe"]
)
def test_garbage_costs_nothing_that_is_known(data: bytes) -> None:
    for streamed in (True, False):
        text = b"data: " + data + b'\ndata: "usage"\n\n' if streamed else data
        read = metered(WIRE, [text], streamed=streamed)
        assert (read.shares, read.complete) == ((), False)


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("POST", "/v1/messages", Call(metered=True)),
        ("POST", "/v1/messages/count_tokens", Call(metered=False)),
        ("GET", "/v1/models", Call(metered=False)),
        ("GET", "/v1/models/claude-sonnet-5-5", Call(metered=False)),
        ("HEAD", "/", Call(metered=False)),
        ("GET", "/", None),
        ("GET", "/v1/messages", None),
        ("POST", "/v1/messages/batches", None),  # billed where no answer shows it
        ("POST", "/v1/messages/", None),
        ("POST", "/v1//messages", None),
        ("POST", "/v1/files", None),
        ("GET", "/v1/models/..", None),
        ("GET", "/v1/models/a/b", None),
        ("GET", "/v1/organizations/usage_report/messages", None),
        ("POST", "http://elsewhere/v1/messages", None),
    ],
)
def test_only_what_agents_need_is_forwarded(method: str, path: str, call: Call | None) -> None:
    assert WIRE.call(method, path, "") == call


def test_credential_is_replaced_wherever_it_stands() -> None:
    sent = {"x-api-key": "one", "authorization": "Bearer two", "anthropic-beta": "b"}
    assert WIRE.credential(sent) == "one"
    assert WIRE.credential({"authorization": "bearer  two"}) == "two"
    assert WIRE.credential({"authorization": "Basic dHdv"}) is None
    assert WIRE.credential({}) is None
    assert sent.keys() - WIRE.credential_headers == {"anthropic-beta"}
    assert (WIRE.credential_headers[0], WIRE.key_header("real")) == ("x-api-key", "real")


def error(kind: str, message: str = "no") -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


RESET = "2026-11-26T12:00:00Z"
AT = 1795694400.0


@pytest.mark.parametrize(
    ("status", "headers", "body", "notice"),
    [
        (429, {"retry-after": "17"}, error("rate_limit_error"), Notice(AccountState.LIMITED, wait_s=17)),
        (429, {"retry-after": "Thu, 26 Nov 2026 12:00:00 GMT"}, b"", Notice(AccountState.LIMITED, resets_at=AT)),
        (
            429,
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": RESET,
                "anthropic-ratelimit-input-tokens-remaining": "70",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-26T13:00:00Z",
            },
            error("rate_limit_error"),
            Notice(AccountState.LIMITED, resets_at=AT),
        ),
        (
            429,
            {"anthropic-ratelimit-unified-reset": str(int(AT))},
            b"",
            Notice(AccountState.LIMITED, resets_at=AT),
        ),
        (
            429,
            {"Anthropic-Ratelimit-Requests-Remaining": "0", "Anthropic-Ratelimit-Requests-Reset": RESET},
            b"",
            Notice(AccountState.LIMITED, resets_at=AT),
        ),
        (429, {"anthropic-ratelimit-requests-reset": "soon"}, b"", Notice(AccountState.LIMITED)),
        (429, {"retry-after": "9" * 40}, b"", Notice(AccountState.LIMITED)),
        (
            400,
            {},
            error("invalid_request_error", "Your credit balance is too low"),
            Notice(AccountState.EXHAUSTED),
        ),
        (402, {}, error("billing_error"), Notice(AccountState.EXHAUSTED)),
        (401, {}, error("authentication_error"), Notice(AccountState.KEY_REFUSED)),
        (400, {}, error("invalid_request_error", "max_tokens is missing"), None),
        (403, {}, error("permission_error"), None),
        (529, {}, error("overloaded_error"), None),
        (500, {}, b"<html>", None),
    ],
)
def test_errors_tell_the_state_of_the_account(
    status: int, headers: dict[str, str], body: bytes, notice: Notice | None
) -> None:
    assert WIRE.notice(headers, status, body) == notice


def test_refusal_looks_like_the_apis_own() -> None:
    refusal = WIRE.refusal(400, "the budget is used up")
    assert refusal.status == 400
    assert json.loads(refusal.body) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "the budget is used up"},
    }

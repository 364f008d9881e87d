"""What Anthropic and OpenAI say they have billed is read to the token, or the place that is not is named."""

from __future__ import annotations

import json
from datetime import date

import pytest

from adapters.claude_code import usage_export as anthropic
from adapters.codex import usage_export as openai
from adapters.toolkit.usage_export import Amount, BilledCost, BilledUsage, UnreadableExport
from adapters.usage import Tokens

MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)
RESULT = {
    "uncached_input_tokens": 25,
    "cache_creation": {"ephemeral_1h_input_tokens": 500, "ephemeral_5m_input_tokens": 200},
    "cache_read_input_tokens": 9000,
    "output_tokens": 321,
    "server_tool_use": {"web_search_requests": 3},
    "api_key_id": "apikey_1",
    "model": "claude-sonnet-5-5",
}
AMOUNT = Amount(Tokens(25, 321, 9000, 700), 500, 3)
CSV = (
    "usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,"
    "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,"
    "usage_output_tokens,web_search_count,inference_geo,speed\n"
)
LINE = "2026-11-24,claude-sonnet-5-5,apikey_1,Default,standard,≤ 200k,25,200,500,9000,321,3,not_available,\n"


def page(*results: object, more: bool = False, at: str = "2026-11-24T00:00:00Z") -> object:
    return {"data": [{"starting_at": at, "results": list(results)}], "has_more": more, "next_page": None}


def bucket(*results: object) -> str:
    """A page of OpenAI's."""
    return json.dumps({"data": [{"start_time": 1795478400, "results": list(results)}], "has_more": False})


def test_report_of_anthropic_is_read() -> None:
    pages = [page(RESULT, at="2026-11-23T00:00:00+00:00", more=True), page(RESULT, {**RESULT, "api_key_id": None})]
    assert list(anthropic.billed_usage(json.dumps(pages))) == [
        BilledUsage(MONDAY, "claude-sonnet-5-5", "apikey_1", AMOUNT),
        BilledUsage(TUESDAY, "claude-sonnet-5-5", "apikey_1", AMOUNT),
        BilledUsage(TUESDAY, "claude-sonnet-5-5", "", AMOUNT),
    ]


@pytest.mark.parametrize("text", [CSV + LINE, "\ufeff" + (CSV + LINE).replace("\n", "\r\n")])
def test_table_of_anthropic_is_read(text: str) -> None:
    assert list(anthropic.billed_usage(text)) == [BilledUsage(TUESDAY, "claude-sonnet-5-5", "apikey_1", AMOUNT)]


def test_costs_of_anthropic_are_in_cents() -> None:
    lines = [{"currency": "USD", "amount": amount, "model": "claude-sonnet-5-5"} for amount in ("123.45", "0.5")]
    lines.append({"currency": "USD", "amount": "3", "model": None, "cost_type": "web_search"})
    assert list(anthropic.billed_costs(json.dumps(page(*lines)))) == [
        BilledCost(TUESDAY, "claude-sonnet-5-5", pytest.approx(1.2345)),
        BilledCost(TUESDAY, "claude-sonnet-5-5", pytest.approx(0.005)),
    ]


OPENAI = {
    "input_tokens": 1000, "input_cached_tokens": 600, "input_cache_write_tokens": 100, "output_tokens": 90,
    "num_model_requests": 5, "model": "gpt-6-sol", "api_key_id": "key_1",
}  # fmt: skip


def test_report_of_openai_is_read() -> None:
    amount = Amount(Tokens(300, 90, 600, 100))
    assert list(openai.billed_usage(bucket(OPENAI))) == [BilledUsage(TUESDAY, "gpt-6-sol", "key_1", amount)]


def test_costs_of_openai_are_those_of_the_models_items() -> None:
    items = [
        {"amount": {"value": usd, "currency": "usd"}, "line_item": item}
        for item, usd in (("gpt-6-sol, input", 0.25), ("gpt-6-sol, output", 1))
    ]
    assert list(openai.billed_costs(bucket(*items))) == [
        BilledCost(TUESDAY, "gpt-6-sol", 0.25),
        BilledCost(TUESDAY, "gpt-6-sol", 1.0),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(page(RESULT, more=True)), "has_more"),
        (
            json.dumps(page({**RESULT, "model": None})),
            "entry 1, of 2026-11-24: ValueError: no model.*group_by model",
        ),
        (json.dumps(page(RESULT, {**RESULT, "output_tokens": -1})), "entry 2, .*'-1' is not a count"),
        (json.dumps(page({**RESULT, "output_tokens": "1e3"})), "'1e3' is not a count"),
        (json.dumps(page({"model": "m"})), "KeyError: 'uncached_input_tokens'"),
        (json.dumps(page(RESULT, at="yesterday")), "not a usage report: ValueError"),
        (json.dumps(page(7)), "entry 1, of 2026-11-24: AttributeError"),
        ('{"error": {}}', "not a usage report: KeyError at 'data'"),
        ("[" * 3000, "not a usage report"),
        ("", "no column usage_date_utc"),
        ("a,b\n1,2\n", "no column usage_date_utc"),
        (CSV + LINE[:-2] + "\n", "line 2: too many or too few columns"),
        (CSV + "x" + LINE, "line 2: Invalid isoformat"),
        (CSV + LINE.replace(",321,", ",many,"), "entry 1, of 2026-11-24: ValueError: 'many' is not a count"),
        (CSV + LINE.replace("Default", '"Def'), "unexpected end of data"),
    ],
)
def test_export_that_cannot_be_read_says_where(text: str, said: str) -> None:
    with pytest.raises(UnreadableExport, match=said):
        list(anthropic.billed_usage(text))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_tokens": 699}, "more cached tokens"),
        ({"model": ""}, "group_by model"),
        ({"output_tokens": []}, "not a count"),
    ],
)
def test_report_of_openai_that_cannot_be_read_says_where(change: dict[str, object], said: str) -> None:
    with pytest.raises(UnreadableExport, match=f"entry 1, of 2026-11-24: .*{said}"):
        list(openai.billed_usage(bucket({**OPENAI, **change})))


def test_other_currencies_are_refused() -> None:
    euro = {"currency": "EUR", "amount": "1", "model": "m"}
    with pytest.raises(UnreadableExport, match="the currency is EUR"):
        list(anthropic.billed_costs(json.dumps(page(euro))))

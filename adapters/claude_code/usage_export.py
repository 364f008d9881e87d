"""Anthropic's usage and cost reports: the Admin API's JSON, and the Console's CSV."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from adapters.toolkit.json_lines import Record
from adapters.toolkit.usage_export import (
    Amount,
    BilledCost,
    BilledUsage,
    billed_count,
    buckets,
    named,
    read_each,
    table,
)
from adapters.usage import Tokens

_TIME = "starting_at"
_COLUMNS = (
    "model_version",
    "usage_input_tokens_no_cache",
    "usage_input_tokens_cache_write_5m",
    "usage_input_tokens_cache_write_1h",
    "usage_input_tokens_cache_read",
    "usage_output_tokens",
)
_CENTS = 100


def billed_usage(text: str) -> Iterator[BilledUsage]:
    """Yield the usage in `/v1/organizations/usage_report/messages` or in a CSV export. Raises UnreadableExport."""
    if text.lstrip().startswith(("{", "[")):
        yield from read_each(buckets(text, _TIME), _result)
    else:
        yield from read_each(table(text, "usage_date_utc", _COLUMNS), _line)


def billed_costs(text: str) -> Iterator[BilledCost]:
    """Yield the costs of tokens in `/v1/organizations/cost_report`, which has cents. Raises UnreadableExport."""
    yield from read_each((entry for entry in buckets(text, _TIME) if _of_tokens(entry[1])), _cost)


def _result(day: date, result: Record) -> BilledUsage:
    written = result.get("cache_creation") or {}
    long_lived = billed_count(written.get("ephemeral_1h_input_tokens"))
    tokens = Tokens(
        billed_count(result["uncached_input_tokens"]),
        billed_count(result["output_tokens"]),
        billed_count(result.get("cache_read_input_tokens")),
        billed_count(written.get("ephemeral_5m_input_tokens")) + long_lived,
    )
    searches = billed_count((result.get("server_tool_use") or {}).get("web_search_requests"))
    amount = Amount(tokens, long_lived, searches)
    return BilledUsage(day, named(result.get("model"), "model"), result.get("api_key_id") or "", amount)


def _line(day: date, line: Record) -> BilledUsage:
    long_lived = billed_count(line["usage_input_tokens_cache_write_1h"])
    tokens = Tokens(
        billed_count(line["usage_input_tokens_no_cache"]),
        billed_count(line["usage_output_tokens"]),
        billed_count(line["usage_input_tokens_cache_read"]),
        billed_count(line["usage_input_tokens_cache_write_5m"]) + long_lived,
    )
    searches = billed_count(line.get("web_search_count"))
    amount = Amount(tokens, long_lived, searches)
    return BilledUsage(day, named(line["model_version"], "model"), line.get("api_key") or "", amount)


def _of_tokens(result: Record) -> bool:
    return not isinstance(result, dict) or result.get("cost_type") in (None, "tokens")


def _cost(day: date, result: Record) -> BilledCost:
    if result["currency"] != "USD":
        raise ValueError(f"the currency is {result['currency']}, not USD")
    return BilledCost(day, named(result.get("model"), "description"), float(result["amount"]) / _CENTS)

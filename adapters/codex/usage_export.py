"""OpenAI's usage and cost reports: the Admin API's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from adapters.toolkit.json_lines import Record
from adapters.toolkit.usage_export import Amount, BilledCost, BilledUsage, billed_count, buckets, named, read_each
from adapters.usage import Tokens

_TIME = "start_time"


def billed_usage(text: str) -> Iterator[BilledUsage]:
    """Yield the usage in `/v1/organization/usage/completions`. Raises UnreadableExport."""
    yield from read_each(buckets(text, _TIME), _result)


def billed_costs(text: str) -> Iterator[BilledCost]:
    """Yield the costs in `/v1/organization/costs`, whose line items are such as `gpt-6-sol, output`.

    Raises UnreadableExport.
    """
    yield from read_each(buckets(text, _TIME), _cost)


def _result(day: date, result: Record) -> BilledUsage:
    read = billed_count(result.get("input_cached_tokens"))
    written = billed_count(result.get("input_cache_write_tokens"))
    fresh = billed_count(result["input_tokens"]) - read - written
    if fresh < 0:
        raise ValueError("more cached tokens than input tokens")
    amount = Amount(Tokens(fresh, billed_count(result["output_tokens"]), read, written))
    return BilledUsage(day, named(result.get("model"), "model"), result.get("api_key_id") or "", amount)


def _cost(day: date, result: Record) -> BilledCost:
    amount = result["amount"]
    if amount["currency"] != "usd":
        raise ValueError(f"the currency is {amount['currency']}, not usd")
    item = named(result.get("line_item"), "line_item")
    return BilledCost(day, item.partition(",")[0].strip(), float(amount["value"]))

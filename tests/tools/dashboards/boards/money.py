"""Cost of turns by model and label, and whether the budgets will last."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import GREEN, ORANGE, RED
from tests.tools.dashboards.panels import distribution, graph, number, ranking, rows
from tests.tools.dashboards.promql import (
    AGENT,
    COMPLETED,
    MODEL,
    booked,
    buckets,
    ledger,
    ledger_rate,
    mean,
    or_zero,
    quantile,
    rate,
    ratio,
)
from tests.tools.dashboards.query import Column, Query
from tests.tools.dashboards.units import COUNT, PER_MINUTE, SECONDS, SHARE, USD, USD_PER_HOUR

_COST = "runturn_cost_usd_total"
_VAIN, _KINDS = "runturn_failed_attempt_cost_usd_total", "agent, version, outcome"
_TURNS = booked("runturn_settled_turns_total", AGENT, COMPLETED)
_USED = ((None, GREEN), (0.8, ORANGE), (1, RED))


def _budget(part: str) -> str:
    return f"max by (budget) (runturn_budget_{part})"


# Cost of a period at its end if spending continues at its rate so far. At least a tenth of the period counts as
# elapsed, or the first turn of a day would forecast ruin; the alert RunturnBudgetForecast also waits that long.
_START, _END = _budget("period_start_timestamp_seconds"), _budget("period_end_timestamp_seconds")
_FORECAST = f"{_budget('spent_usd')} / clamp((time() - {_START}) / ({_END} - {_START}), 0.1, 1)"
_LEFT = f"{_budget('limit_usd')} - {_budget('spent_usd')} - {_budget('reserved_usd')}"

_SPENT = Section(
    "Spent",
    (
        number(
            "Spent",
            "Cost of all turns in the selected range, as booked in the ledger, failed and retried turns included.",
            USD,
            or_zero(booked(_COST, AGENT, MODEL)),
        ),
        number(
            "Cost per completed turn",
            "Total cost in the selected range divided by the number of completed turns: the cost of a result.",
            USD,
            ratio(booked(_COST, AGENT, MODEL), _TURNS),
            none="no turn",
        ),
        number(
            "Mean cost per turn",
            "Mean cost of a settled turn in the selected range, whatever its outcome.",
            USD,
            mean("runturn_turn_cost_usd", AGENT),
            none="no turn",
        ),
        number(
            "Spend rate",
            "Current spending in dollars per hour.",
            USD_PER_HOUR,
            or_zero(ledger_rate(_COST, AGENT, MODEL, per_s=3600)),
            decimals=2,
            trend=True,
        ),
        number(
            "Total booked",
            "Total cost ever booked in this ledger.",
            USD,
            or_zero(ledger(_COST, AGENT, MODEL)),
        ),
        number(
            "Unpriced tokens",
            "Tokens in the selected range whose model has no known price: their cost is missing above.",
            COUNT,
            or_zero(booked("runturn_unpriced_tokens_total", AGENT, MODEL)),
            steps=((None, GREEN), (1, ORANGE)),
        ),
        graph(
            "Spend rate by model",
            "Dollars per hour.",
            USD_PER_HOUR,
            Query(ledger_rate(_COST, AGENT, MODEL, by="model", per_s=3600), "{{model}}"),
            stacked=True,
        ),
        graph(
            "Spend rate by agent",
            "Dollars per hour.",
            USD_PER_HOUR,
            Query(ledger_rate(_COST, AGENT, MODEL, by="agent", per_s=3600), "{{agent}}"),
            stacked=True,
        ),
        ranking(
            "Cost per completed turn, by model",
            "Each model's part of the cost per completed turn in the selected range. The parts add up to the "
            "number above.",
            USD,
            Query(f"({booked(_COST, AGENT, MODEL, by='model')}) / scalar(({_TURNS}) > 0)", "{{model}}"),
        ),
        ranking(
            "Spent by model",
            "Cost in the selected range.",
            USD,
            Query(booked(_COST, AGENT, MODEL, by="model"), "{{model}}"),
        ),
        ranking(
            "Cost per completed turn, by agent",
            "Cost of each agent in the selected range divided by the number of turns that it completed.",
            USD,
            Query(
                ratio(
                    booked(_COST, AGENT, MODEL, by="agent"),
                    booked("runturn_settled_turns_total", AGENT, COMPLETED, by="agent"),
                ),
                "{{agent}}",
            ),
        ),
    ),
)

_IN_VAIN = Section(
    "Failed attempts",
    (
        number(
            "Cost of failed attempts",
            "Cost of attempts in the selected range that did not complete, cancelled ones included. Later "
            "attempts may have continued from there.",
            USD,
            or_zero(booked(_VAIN, AGENT)),
            width=8,
        ),
        number(
            "Share of cost",
            "Cost of failed attempts as a share of the total cost in the selected range.",
            SHARE,
            ratio(or_zero(booked(_VAIN, AGENT)), booked(_COST, AGENT)),
            steps=((None, GREEN), (0.1, ORANGE), (0.25, RED)),
            none="nothing spent",
            width=8,
        ),
        number(
            "Tokens",
            "Billed tokens of attempts in the selected range that did not complete, with or without a price.",
            COUNT,
            or_zero(booked("runturn_failed_attempt_tokens_total", AGENT)),
            width=8,
        ),
        rows(
            "By kind and version",
            "Cost and tokens of attempts in the selected range that did not complete, by outcome and agent "
            "version. Versions that have not failed for a long time are merged into `other`.",
            {"agent": "Agent", "version": "Version", "outcome": "Kind"},
            Column("Cost", f"{booked(_VAIN, AGENT, by=_KINDS)} > 0", USD),
            Column("Tokens", f"{booked('runturn_failed_attempt_tokens_total', AGENT, by=_KINDS)} > 0", COUNT),
        ),
        graph(
            "Spend rate by kind",
            "Dollars per hour spent on attempts that did not complete, by outcome.",
            USD_PER_HOUR,
            Query(ledger_rate(_VAIN, AGENT, by="outcome", per_s=3600), "{{outcome}}"),
            stacked=True,
        ),
        graph(
            "Spend rate by version",
            "Dollars per hour spent on attempts that did not complete, by agent version.",
            USD_PER_HOUR,
            Query(ledger_rate(_VAIN, AGENT, by="agent, version", per_s=3600), "{{agent}} {{version}}"),
            stacked=True,
        ),
    ),
)

_BUDGETS = Section(
    "Budgets by label",
    (
        rows(
            "Budgets",
            "Current period of every budget. The forecast is the period's cost at its end if spending continues "
            "at its rate so far; a total budget has no end. Turns that no longer fit fail.",
            {"budget": "Budget"},
            Column("Limit", _budget("limit_usd"), USD),
            Column("Spent", _budget("spent_usd"), USD),
            Column("Reserved", _budget("reserved_usd"), USD),
            Column("Left", _LEFT, USD, ((None, RED), (0, ORANGE), (1e-9, GREEN))),
            Column("Used", f"{_budget('spent_usd')} / ({_budget('limit_usd')} > 0)", SHARE, _USED),
            Column("Forecast", _FORECAST, USD),
            Column("Forecast used", f"({_FORECAST}) / ({_budget('limit_usd')} > 0)", SHARE, _USED),
            Column("Ends in", f"{_END} - time()", SECONDS),
        ),
        ranking(
            "Used",
            "Amount spent and reserved in the current period, as a share of its limit.",
            SHARE,
            Query(
                f"({_budget('spent_usd')} + {_budget('reserved_usd')}) / ({_budget('limit_usd')} > 0)",
                "{{budget}}",
            ),
            steps=_USED,
            top=1,
        ),
        ranking(
            "Forecast",
            "Forecast spending of the current period at its rate so far, as a share of its limit.",
            SHARE,
            Query(f"({_FORECAST}) / ({_budget('limit_usd')} > 0)", "{{budget}}"),
            steps=_USED,
            top=2,
        ),
        graph(
            "Refused turns",
            "Turns refused by a budget per minute. They fail with budget_exceeded.",
            PER_MINUTE,
            Query(rate("runturn_budget_denials_total", by="budget", per_s=60), "{{budget}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Spent in the current period",
            "Resets to 0 when a period begins.",
            USD,
            Query(_budget("spent_usd"), "{{budget}}"),
        ),
        graph(
            "Forecast for the current period",
            "Forecast spending of the current period at its rate so far.",
            USD,
            Query(_FORECAST, "{{budget}}"),
        ),
    ),
)

_TURN = Section(
    "Costs of turns",
    (
        graph(
            "Cost of a turn",
            "Median and 95th percentile of the cost of a turn. The dots are turns.",
            USD,
            Query(quantile(0.5, "runturn_turn_cost_usd", AGENT, by="agent"), "p50 {{agent}}", exemplars=True),
            Query(quantile(0.95, "runturn_turn_cost_usd", AGENT, by="agent"), "p95 {{agent}}", exemplars=True),
        ),
        distribution(
            "Cost distribution",
            "Number of turns by cost.",
            USD,
            Query(buckets("runturn_turn_cost_usd", AGENT), "{{le}}", exemplars=True),
        ),
    ),
)

BOARD = Board(
    "money",
    "Money",
    "Cost of turns by model and label, and whether the budgets will last.",
    (_SPENT, _IN_VAIN, _BUDGETS, _TURN),
    variables=("agent", "model"),
)

"""What turns cost, which models and labels that goes to, and whether the budgets will do."""

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


# What a period will have cost if it goes on as it began. At least a tenth of it counts as gone by, or the first
# turn of a day would foretell ruin; the alert RunturnBudgetForecast says nothing before that, either.
_START, _END = _budget("period_start_timestamp_seconds"), _budget("period_end_timestamp_seconds")
_FORECAST = f"{_budget('spent_usd')} / clamp((time() - {_START}) / ({_END} - {_START}), 0.1, 1)"
_LEFT = f"{_budget('limit_usd')} - {_budget('spent_usd')} - {_budget('reserved_usd')}"

_SPENT = Section(
    "Spent",
    (
        number(
            "Spent",
            "Cost of all turns in the range shown, as the ledger booked it: failed and retried turns included.",
            USD,
            or_zero(booked(_COST, AGENT, MODEL)),
        ),
        number(
            "A completed turn",
            "All that was spent in the range shown, divided by the turns that completed: what a result costs.",
            USD,
            ratio(booked(_COST, AGENT, MODEL), _TURNS),
            none="no turn",
        ),
        number(
            "Mean turn",
            "What a settled turn cost in the range shown, whatever became of it.",
            USD,
            mean("runturn_turn_cost_usd", AGENT),
            none="no turn",
        ),
        number(
            "Spend rate",
            "What is spent now, as dollars an hour.",
            USD_PER_HOUR,
            or_zero(ledger_rate(_COST, AGENT, MODEL, per_s=3600)),
            decimals=2,
            trend=True,
        ),
        number(
            "In the books",
            "All that this ledger has ever booked.",
            USD,
            or_zero(ledger(_COST, AGENT, MODEL)),
        ),
        number(
            "Tokens without a price",
            "Tokens in the range shown whose model has no known price: their cost is missing above.",
            COUNT,
            or_zero(booked("runturn_unpriced_tokens_total", AGENT, MODEL)),
            steps=((None, GREEN), (1, ORANGE)),
        ),
        graph(
            "Spend rate by model",
            "Dollars an hour.",
            USD_PER_HOUR,
            Query(ledger_rate(_COST, AGENT, MODEL, by="model", per_s=3600), "{{model}}"),
            stacked=True,
        ),
        graph(
            "Spend rate by agent",
            "Dollars an hour.",
            USD_PER_HOUR,
            Query(ledger_rate(_COST, AGENT, MODEL, by="agent", per_s=3600), "{{agent}}"),
            stacked=True,
        ),
        ranking(
            "A completed turn, by model",
            "What each model adds to the cost of a completed turn in the range shown. They add up to the number "
            "above.",
            USD,
            Query(f"({booked(_COST, AGENT, MODEL, by='model')}) / scalar(({_TURNS}) > 0)", "{{model}}"),
        ),
        ranking(
            "Spent, by model",
            "Cost in the range shown.",
            USD,
            Query(booked(_COST, AGENT, MODEL, by="model"), "{{model}}"),
        ),
        ranking(
            "A completed turn, by agent",
            "What each agent spent in the range shown, divided by the turns that it completed.",
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
    "Spent in attempts that failed",
    (
        number(
            "Failed attempts",
            "Cost of the attempts in the range shown that did not complete, cancelled ones included. A later one "
            "may have gone on from there.",
            USD,
            or_zero(booked(_VAIN, AGENT)),
            width=8,
        ),
        number(
            "Share",
            "That cost, of all that was spent in the range shown.",
            SHARE,
            ratio(or_zero(booked(_VAIN, AGENT)), booked(_COST, AGENT)),
            steps=((None, GREEN), (0.1, ORANGE), (0.25, RED)),
            none="nothing spent",
            width=8,
        ),
        number(
            "Tokens",
            "Billed tokens of the attempts in the range shown that did not complete, with or without a price.",
            COUNT,
            or_zero(booked("runturn_failed_attempt_tokens_total", AGENT)),
            width=8,
        ),
        rows(
            "By kind and version",
            "What attempts in the range shown cost and used that did not complete, by how they ended and by the "
            "agent's version. Versions that have not failed for long are called other.",
            {"agent": "Agent", "version": "Version", "outcome": "Kind"},
            Column("Cost", f"{booked(_VAIN, AGENT, by=_KINDS)} > 0", USD),
            Column("Tokens", f"{booked('runturn_failed_attempt_tokens_total', AGENT, by=_KINDS)} > 0", COUNT),
        ),
        graph(
            "Spend rate by kind",
            "Dollars an hour that went into attempts that did not complete, by how they ended.",
            USD_PER_HOUR,
            Query(ledger_rate(_VAIN, AGENT, by="outcome", per_s=3600), "{{outcome}}"),
            stacked=True,
        ),
        graph(
            "Spend rate by version",
            "The same, by the agent's version.",
            USD_PER_HOUR,
            Query(ledger_rate(_VAIN, AGENT, by="agent, version", per_s=3600), "{{agent}} {{version}}"),
            stacked=True,
        ),
    ),
)

_BUDGETS = Section(
    "Budgets, by label",
    (
        rows(
            "Budgets",
            "The running period of every budget. The forecast is what the period will have cost at its end if it "
            "goes "
            "on as it began; a budget in total has no end. A turn that does not fit any more fails.",
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
            "What the running period has spent and reserved, of its limit.",
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
            "What the running period will have spent at its end, of its limit, if it goes on as it began.",
            SHARE,
            Query(f"({_FORECAST}) / ({_budget('limit_usd')} > 0)", "{{budget}}"),
            steps=_USED,
            top=2,
        ),
        graph(
            "Turns refused",
            "Turns that a budget did not let start, a minute. They fail with budget_exceeded.",
            PER_MINUTE,
            Query(rate("runturn_budget_denials_total", by="budget", per_s=60), "{{budget}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Spent in the running period",
            "It falls to 0 when a period begins.",
            USD,
            Query(_budget("spent_usd"), "{{budget}}"),
        ),
        graph(
            "Forecast for the running period",
            "What it will have spent at its end if it goes on as it began.",
            USD,
            Query(_FORECAST, "{{budget}}"),
        ),
    ),
)

_TURN = Section(
    "What a turn costs",
    (
        graph(
            "Cost of a turn",
            "What half of the turns, and 95% of them, did not exceed. The dots are turns.",
            USD,
            Query(quantile(0.5, "runturn_turn_cost_usd", AGENT, by="agent"), "p50 {{agent}}", exemplars=True),
            Query(quantile(0.95, "runturn_turn_cost_usd", AGENT, by="agent"), "p95 {{agent}}", exemplars=True),
        ),
        distribution(
            "Costs of turns",
            "How many turns cost how much.",
            USD,
            Query(buckets("runturn_turn_cost_usd", AGENT), "{{le}}", exemplars=True),
        ),
    ),
)

BOARD = Board(
    "money",
    "Money",
    "What turns cost, by model and by label, and whether the budgets will do.",
    (_SPENT, _IN_VAIN, _BUDGETS, _TURN),
    variables=("agent", "model"),
)

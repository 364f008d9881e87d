"""Billed tokens, and how much of the prompts came from the cache."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import GREEN, ORANGE, RED
from tests.tools.dashboards.panels import graph, number, ranking, rows
from tests.tools.dashboards.promql import AGENT, COMPLETED, MODEL, booked, ledger, ledger_rate, or_zero, ratio
from tests.tools.dashboards.query import Column, Query
from tests.tools.dashboards.units import COUNT, SHARE, TOKENS_PER_MINUTE, USD

_TOKENS = "runturn_tokens_total"
_READ = 'type="cache_read"'
_PROMPT = 'type!="output"'  # input, cache_read and cache_creation: they are disjoint
_OUTPUT = 'type="output"'
_KINDS = {
    "Input": "input",
    "Output": "output",
    "Read from cache": "cache_read",
    "Written to cache": "cache_creation",
}

_NOW = Section(
    "In the range shown",
    (
        number("Tokens", "Billed tokens of all kinds.", COUNT, or_zero(booked(_TOKENS, AGENT, MODEL))),
        number(
            "Read from the cache",
            "Of all tokens of prompts (input, read from the cache, written to it), those that were read from the "
            "cache. "
            "Agents that go on in one session reach 90% and more.",
            SHARE,
            ratio(booked(_TOKENS, AGENT, MODEL, _READ), booked(_TOKENS, AGENT, MODEL, _PROMPT)),
            steps=((None, RED), (0.5, ORANGE), (0.8, GREEN)),
            none="no turn",
        ),
        number("Output", "Tokens that models wrote.", COUNT, or_zero(booked(_TOKENS, AGENT, MODEL, _OUTPUT))),
        number(
            "A completed turn",
            "Tokens of all turns, divided by those that completed.",
            COUNT,
            ratio(booked(_TOKENS, AGENT, MODEL), booked("runturn_settled_turns_total", AGENT, COMPLETED)),
            none="no turn",
        ),
        number(
            "A million tokens",
            "What a million tokens cost, all kinds together: the more come from the cache, the less.",
            USD,
            f"1e6 * {ratio(booked('runturn_cost_usd_total', AGENT, MODEL), booked(_TOKENS, AGENT, MODEL))}",
            none="no turn",
        ),
        number(
            "Without a price",
            "Tokens whose model has no known price: no cost is booked for them.",
            COUNT,
            or_zero(booked("runturn_unpriced_tokens_total", AGENT, MODEL)),
            steps=((None, GREEN), (1, ORANGE)),
        ),
    ),
)

_TIME = Section(
    "Over time",
    (
        graph(
            "Tokens by kind",
            "Tokens a minute. The kinds are disjoint.",
            TOKENS_PER_MINUTE,
            Query(ledger_rate(_TOKENS, AGENT, MODEL, by="type", per_s=60), "{{type}}"),
            stacked=True,
        ),
        graph(
            "Tokens by model",
            "Tokens of all kinds a minute.",
            TOKENS_PER_MINUTE,
            Query(ledger_rate(_TOKENS, AGENT, MODEL, by="model", per_s=60), "{{model}}"),
            stacked=True,
        ),
        graph(
            "Read from the cache, by model",
            "The share of prompt tokens that came from the cache.",
            SHARE,
            Query(
                ratio(
                    ledger_rate(_TOKENS, AGENT, MODEL, _READ, by="model"),
                    ledger_rate(_TOKENS, AGENT, MODEL, _PROMPT, by="model"),
                ),
                "{{model}}",
            ),
            top=1,
        ),
        graph(
            "Output by model",
            "Tokens that models wrote, a minute.",
            TOKENS_PER_MINUTE,
            Query(ledger_rate(_TOKENS, AGENT, MODEL, _OUTPUT, by="model", per_s=60), "{{model}}"),
            stacked=True,
        ),
    ),
)

_MODELS = Section(
    "By model",
    (
        rows(
            "Models",
            "Tokens in the range shown, and what they cost.",
            {"agent": "Agent", "model": "Model"},
            *(
                Column(title, booked(_TOKENS, AGENT, MODEL, f'type="{kind}"', by="agent, model"), COUNT)
                for title, kind in _KINDS.items()
            ),
            Column("Cost", booked("runturn_cost_usd_total", AGENT, MODEL, by="agent, model"), USD),
            width=16,
            height=8,
        ),
        ranking(
            "In the books",
            "All tokens that this ledger has ever booked.",
            COUNT,
            Query(ledger(_TOKENS, AGENT, MODEL, by="model"), "{{model}}"),
        ),
        graph(
            "Tokens without a price",
            "Tokens a minute of models without a known price. Claude Code's list of prices has to learn them.",
            TOKENS_PER_MINUTE,
            Query(
                or_zero(ledger_rate("runturn_unpriced_tokens_total", AGENT, MODEL, per_s=60)), "without a price"
            ),
            width=24,
            height=6,
        ),
    ),
)

BOARD = Board(
    "tokens",
    "Tokens",
    "Billed tokens by kind and model, and how much of the prompts came from the cache.",
    (_NOW, _TIME, _MODELS),
    variables=("agent", "model"),
)

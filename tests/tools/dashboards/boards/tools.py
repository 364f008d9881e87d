"""Tools that agents use, their failures and their durations."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import GREEN, ORANGE, RED
from tests.tools.dashboards.panels import distribution, graph, number, ranking, rows
from tests.tools.dashboards.promql import AGENT, booked, buckets, increase, mean, or_zero, quantile, rate, ratio
from tests.tools.dashboards.query import Column, Query
from tests.tools.dashboards.units import COUNT, PER_MINUTE, SECONDS, SHARE

_CALLS = "runturn_tool_calls_total"
_TOOK = "runturn_tool_duration_seconds"
_ERROR = 'outcome="error"'
_SHARE_STEPS = ((None, GREEN), (0.1, ORANGE), (0.3, RED))


def _failed(by: str = "") -> str:
    """Return the share of failed calls; 0 for a tool that has no series of errors."""
    calls, errors = increase(_CALLS, AGENT, by=by), increase(_CALLS, AGENT, _ERROR, by=by)
    return ratio(f"{errors} or {calls} * 0", calls)


_NOW = Section(
    "In the selected range",
    (
        number("Calls", "Finished tool calls.", COUNT, or_zero(increase(_CALLS, AGENT)), decimals=0, width=6),
        number(
            "Failed",
            "Share of tool calls that failed. Agents try alternatives; many failures cost tokens.",
            SHARE,
            _failed(),
            steps=_SHARE_STEPS,
            none="no call",
            width=6,
        ),
        number(
            "Calls per turn",
            "Tool calls divided by the number of settled turns.",
            COUNT,
            ratio(increase(_CALLS, AGENT), booked("runturn_settled_turns_total", AGENT)),
            decimals=1,
            none="no turn",
            width=6,
        ),
        number("Mean duration", "Mean duration of a tool call.", SECONDS, mean(_TOOK), none="no call", width=6),
        rows(
            "Tools",
            "Calls in the selected range. Tools that do not come with the agent, such as MCP tools, are `other`.",
            {"tool": "Tool"},
            Column("Calls", increase(_CALLS, AGENT, by="tool"), COUNT, decimals=0),
            Column("Failed", _failed("tool"), SHARE, _SHARE_STEPS),
            Column("Mean", mean(_TOOK, by="tool"), SECONDS),
            Column("p95", quantile(0.95, _TOOK, by="tool", over="$__range"), SECONDS),
            width=12,
            height=8,
        ),
        ranking(
            "Calls",
            "Calls in the selected range.",
            COUNT,
            Query(f"{increase(_CALLS, AGENT, by='tool')} > 0", "{{tool}}"),
            width=6,
            decimals=0,
        ),
        ranking(
            "Time in tools",
            "Seconds that agents spent in each tool in the selected range.",
            SECONDS,
            Query(f"{increase(f'{_TOOK}_sum', by='tool')} > 0", "{{tool}}"),
            width=6,
        ),
    ),
)

_TIME = Section(
    "Over time",
    (
        graph(
            "Calls by tool",
            "Tool calls per minute.",
            PER_MINUTE,
            Query(f"{rate(_CALLS, AGENT, by='tool', per_s=60)} > 0", "{{tool}}"),
            width=8,
            stacked=True,
            bars=True,
        ),
        graph(
            "Calls by outcome",
            "Successful and failed tool calls per minute.",
            PER_MINUTE,
            Query(rate(_CALLS, AGENT, by="outcome", per_s=60), "{{outcome}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Calls by agent",
            "Tool calls per minute.",
            PER_MINUTE,
            Query(rate(_CALLS, AGENT, by="agent", per_s=60), "{{agent}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Duration by tool",
            "95th percentile of the duration of calls.",
            SECONDS,
            Query(quantile(0.95, _TOOK, by="tool"), "{{tool}}"),
        ),
        distribution(
            "Duration distribution", "Number of calls by duration.", SECONDS, Query(buckets(_TOOK), "{{le}}")
        ),
    ),
)

BOARD = Board(
    "tools",
    "Tools",
    "Tools that agents use, their failures, and their durations.",
    (_NOW, _TIME),
    variables=("agent",),
)

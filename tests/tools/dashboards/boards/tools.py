"""Which tools agents use, which fail, and how long they take."""

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
    """0 for a tool that never failed: it has no series of errors."""
    calls, errors = increase(_CALLS, AGENT, by=by), increase(_CALLS, AGENT, _ERROR, by=by)
    return ratio(f"{errors} or {calls} * 0", calls)


_NOW = Section(
    "In the range shown",
    (
        number("Calls", "Tool calls that ended.", COUNT, or_zero(increase(_CALLS, AGENT)), decimals=0, width=6),
        number(
            "Failed",
            "The share of tool calls that failed. Agents try other ways; many failures cost tokens.",
            SHARE,
            _failed(),
            steps=_SHARE_STEPS,
            none="no call",
            width=6,
        ),
        number(
            "Calls in a turn",
            "Tool calls, divided by the turns that ended.",
            COUNT,
            ratio(increase(_CALLS, AGENT), booked("runturn_settled_turns_total", AGENT)),
            decimals=1,
            none="no turn",
            width=6,
        ),
        number("Mean call", "How long a tool call took.", SECONDS, mean(_TOOK), none="no call", width=6),
        rows(
            "Tools",
            "Calls in the range shown. Tools that do not come with the agent (of MCP servers, say) are `other`.",
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
            "Calls in the range shown.",
            COUNT,
            Query(f"{increase(_CALLS, AGENT, by='tool')} > 0", "{{tool}}"),
            width=6,
            decimals=0,
        ),
        ranking(
            "Time in tools",
            "Seconds that agents spent in each tool in the range shown.",
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
            "Tool calls a minute.",
            PER_MINUTE,
            Query(f"{rate(_CALLS, AGENT, by='tool', per_s=60)} > 0", "{{tool}}"),
            width=8,
            stacked=True,
            bars=True,
        ),
        graph(
            "Calls by outcome",
            "Tool calls a minute that went well, or failed.",
            PER_MINUTE,
            Query(rate(_CALLS, AGENT, by="outcome", per_s=60), "{{outcome}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Calls by agent",
            "Tool calls a minute.",
            PER_MINUTE,
            Query(rate(_CALLS, AGENT, by="agent", per_s=60), "{{agent}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Duration by tool",
            "What 95% of the calls did not exceed.",
            SECONDS,
            Query(quantile(0.95, _TOOK, by="tool"), "{{tool}}"),
        ),
        distribution("Durations", "How many calls took how long.", SECONDS, Query(buckets(_TOOK), "{{le}}")),
    ),
)

BOARD = Board(
    "tools",
    "Tools",
    "Which tools agents use, which fail, and how long they take.",
    (_NOW, _TIME),
    variables=("agent",),
)

"""Outcomes, durations and starts of turns."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import GREEN, ORANGE, RED
from tests.tools.dashboards.panels import distribution, graph, number, ranking
from tests.tools.dashboards.promql import (
    AGENT,
    COMPLETED,
    COUNTED,
    FAILED,
    booked,
    buckets,
    mean,
    or_zero,
    quantile,
    rate,
    ratio,
)
from tests.tools.dashboards.query import Query
from tests.tools.dashboards.units import COUNT, PER_MINUTE, SECONDS, SHARE

_SETTLED = "runturn_settled_turns_total"
_TURNS = "runturn_turns_total"
_DURATION = "runturn_turn_duration_seconds"
_API = "runturn_turn_api_duration_seconds"
_FIRST = "runturn_turn_first_event_seconds"
_WAIT = "runturn_turn_queue_wait_seconds"

_OUTCOMES = Section(
    "Outcomes",
    (
        number(
            "Settled",
            "Turns settled in the selected range, according to the ledger.",
            COUNT,
            or_zero(booked(_SETTLED, AGENT)),
        ),
        number(
            "Completed",
            "Share of turns settled in the selected range that completed. Cancelled turns do not count.",
            SHARE,
            ratio(or_zero(booked(_SETTLED, AGENT, COMPLETED)), booked(_SETTLED, AGENT, COUNTED)),
            steps=((None, RED), (0.8, ORANGE), (0.95, GREEN)),
            none="no turn",
        ),
        number("Failed", "Turns that failed permanently.", COUNT, or_zero(booked(_SETTLED, AGENT, FAILED))),
        number(
            "Cancelled",
            "Turns that were cancelled.",
            COUNT,
            or_zero(booked(_SETTLED, AGENT, 'outcome="turn_cancelled"')),
        ),
        number(
            "Mean duration",
            "Mean time from the claim of a turn to its settlement, retries included.",
            SECONDS,
            mean(_DURATION, AGENT),
            none="no turn",
        ),
        number(
            "Running",
            "Turns that workers are running now.",
            COUNT,
            or_zero("sum(runturn_turns_in_flight)"),
            trend=True,
        ),
        ranking(
            "By outcome",
            "Turns settled in the selected range, according to the ledger: completed, or the error kind.",
            COUNT,
            Query(f"({booked(_SETTLED, AGENT, by='outcome')}) > 0", "{{outcome}}"),
        ),
        graph(
            "Finished turns",
            "Turns settled per minute, by outcome. The dots are turns.",
            PER_MINUTE,
            Query(f"{rate(_TURNS, AGENT, by='outcome', per_s=60)} > 0", "{{outcome}}", exemplars=True),
            width=8,
            stacked=True,
            bars=True,
        ),
        graph(
            "By launcher",
            "Turns settled per minute: on the workers' own machines, over SSH, or before any agent was started.",
            PER_MINUTE,
            Query(rate(_TURNS, AGENT, by="launcher", per_s=60), "{{launcher}}"),
            width=8,
            stacked=True,
        ),
    ),
)

_LONG = Section(
    "Durations",
    (
        graph(
            "Duration",
            "Time from the claim of a turn to its settlement, retries included: median, 95th and 99th percentile. "
            "The dots are turns.",
            SECONDS,
            *(
                Query(quantile(q, _DURATION, AGENT), f"p{q * 100:.0f}", exemplars=q == 0.5)
                for q in (0.5, 0.95, 0.99)
            ),
        ),
        distribution(
            "Duration distribution",
            "Number of turns by duration.",
            SECONDS,
            Query(buckets(_DURATION, AGENT), "{{le}}", exemplars=True),
        ),
        graph(
            "Duration by agent",
            "95th percentile of the duration of turns.",
            SECONDS,
            Query(quantile(0.95, _DURATION, AGENT, by="agent"), "{{agent}}", exemplars=True),
            width=8,
        ),
        graph(
            "Waiting for the model",
            "Time that turns waited for their model, as reported by the agent.",
            SECONDS,
            *(Query(quantile(q, _API, AGENT), f"p{q * 100:.0f}", exemplars=q == 0.5) for q in (0.5, 0.95)),
            width=8,
        ),
        graph(
            "Model share of duration",
            "Time waiting for the model as a share of the duration of turns. The rest is tools, retries and "
            "waiting for hosts. Parallel requests can push it above 100%.",
            SHARE,
            Query(
                ratio(rate(f"{_API}_sum", AGENT, by="agent"), rate(f"{_DURATION}_sum", AGENT, by="agent")),
                "{{agent}}",
            ),
            width=8,
        ),
    ),
)

_BEGIN = Section(
    "Start",
    (
        graph(
            "Queue wait",
            "Time from when a turn could start to its first claim. The dots are turns.",
            SECONDS,
            *(
                Query(quantile(q, _WAIT, by="queue"), f"p{q * 100:.0f} {{{{queue}}}}", exemplars=q == 0.5)
                for q in (0.5, 0.95)
            ),
        ),
        graph(
            "Time to first event",
            "Time from the start of an attempt to the agent's first event, by launcher. An agent that is silent "
            "for read_timeout_ms is terminated.",
            SECONDS,
            Query(quantile(0.5, _FIRST, by="launcher"), "p50 {{launcher}}", exemplars=True),
            Query(quantile(0.95, _FIRST, by="launcher"), "p95 {{launcher}}"),
        ),
        distribution(
            "Queue wait distribution",
            "Number of turns by queue wait.",
            SECONDS,
            Query(buckets(_WAIT), "{{le}}", exemplars=True),
        ),
        distribution(
            "Time to first event distribution",
            "Number of attempts by time to their first event.",
            SECONDS,
            Query(buckets(_FIRST), "{{le}}", exemplars=True),
        ),
    ),
)

BOARD = Board(
    "turns",
    "Turns",
    "Outcomes, durations and starts of turns.",
    (_OUTCOMES, _LONG, _BEGIN),
    variables=("agent",),
)

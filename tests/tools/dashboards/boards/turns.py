"""What becomes of turns, and how long they take."""

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
            "Turns that ended in the range shown, by the ledger.",
            COUNT,
            or_zero(booked(_SETTLED, AGENT)),
        ),
        number(
            "Completed",
            "Of the turns that ended in the range shown, cancelled ones apart, those that completed.",
            SHARE,
            ratio(or_zero(booked(_SETTLED, AGENT, COMPLETED)), booked(_SETTLED, AGENT, COUNTED)),
            steps=((None, RED), (0.8, ORANGE), (0.95, GREEN)),
            none="no turn",
        ),
        number("Failed", "Turns that failed for good.", COUNT, or_zero(booked(_SETTLED, AGENT, FAILED))),
        number(
            "Cancelled",
            "Turns that somebody cancelled.",
            COUNT,
            or_zero(booked(_SETTLED, AGENT, 'outcome="turn_cancelled"')),
        ),
        number(
            "Mean duration",
            "From the claim of a turn to its settlement, retries included.",
            SECONDS,
            mean(_DURATION, AGENT),
            none="no turn",
        ),
        number(
            "At work", "Turns that workers are at now.", COUNT, or_zero("sum(runturn_turns_in_flight)"), trend=True
        ),
        ranking(
            "By outcome",
            "Turns that ended in the range shown, by the ledger: completed, or the error that they failed with.",
            COUNT,
            Query(f"({booked(_SETTLED, AGENT, by='outcome')}) > 0", "{{outcome}}"),
        ),
        graph(
            "Turns that ended",
            "Turns settled a minute, by outcome. The dots are turns.",
            PER_MINUTE,
            Query(f"{rate(_TURNS, AGENT, by='outcome', per_s=60)} > 0", "{{outcome}}", exemplars=True),
            width=8,
            stacked=True,
            bars=True,
        ),
        graph(
            "By launcher",
            "Turns settled a minute: on the workers' own machines, over SSH, or ended before any agent was "
            "started.",
            PER_MINUTE,
            Query(rate(_TURNS, AGENT, by="launcher", per_s=60), "{{launcher}}"),
            width=8,
            stacked=True,
        ),
    ),
)

_LONG = Section(
    "How long they take",
    (
        graph(
            "Duration",
            "From the claim of a turn to its settlement, retries included: what half, 95% and 99% of the turns "
            "did not "
            "exceed. The dots are turns.",
            SECONDS,
            *(
                Query(quantile(q, _DURATION, AGENT), f"p{q * 100:.0f}", exemplars=q == 0.5)
                for q in (0.5, 0.95, 0.99)
            ),
        ),
        distribution(
            "Durations",
            "How many turns took how long.",
            SECONDS,
            Query(buckets(_DURATION, AGENT), "{{le}}", exemplars=True),
        ),
        graph(
            "Duration by agent",
            "What 95% of the turns did not exceed.",
            SECONDS,
            Query(quantile(0.95, _DURATION, AGENT, by="agent"), "{{agent}}", exemplars=True),
            width=8,
        ),
        graph(
            "Waiting for the model",
            "How long turns waited for their model, as the agent reports it.",
            SECONDS,
            *(Query(quantile(q, _API, AGENT), f"p{q * 100:.0f}", exemplars=q == 0.5) for q in (0.5, 0.95)),
            width=8,
        ),
        graph(
            "Share of the model",
            "Of the time that turns took, what they waited for their model. The rest is tools, retries and "
            "queues for "
            "hosts. Parallel requests can make it exceed 100%.",
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
    "How they begin",
    (
        graph(
            "Wait in the queue",
            "From the time a turn could start to its first claim. The dots are turns.",
            SECONDS,
            *(
                Query(quantile(q, _WAIT, by="queue"), f"p{q * 100:.0f} {{{{queue}}}}", exemplars=q == 0.5)
                for q in (0.5, 0.95)
            ),
        ),
        graph(
            "Time to the first event",
            "From the start of an attempt to the agent's first sign of life, by where it was started. An agent "
            "that "
            "says nothing for read_timeout_ms is ended.",
            SECONDS,
            Query(quantile(0.5, _FIRST, by="launcher"), "p50 {{launcher}}", exemplars=True),
            Query(quantile(0.95, _FIRST, by="launcher"), "p95 {{launcher}}"),
        ),
        distribution(
            "Waits in the queue",
            "How many turns waited how long.",
            SECONDS,
            Query(buckets(_WAIT), "{{le}}", exemplars=True),
        ),
        distribution(
            "Times to the first event",
            "How many attempts took how long to show a sign of life.",
            SECONDS,
            Query(buckets(_FIRST), "{{le}}", exemplars=True),
        ),
    ),
)

BOARD = Board(
    "turns",
    "Turns",
    "What becomes of turns, how long they take, and how they begin.",
    (_OUTCOMES, _LONG, _BEGIN),
    variables=("agent",),
)

"""Failures that runturn recovered from, and events that must never happen."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import ANY_IS_BAD, ANY_IS_ODD
from tests.tools.dashboards.panels import graph, number, ranking, states
from tests.tools.dashboards.promql import AGENT, booked, increase, ledger, or_zero, rate
from tests.tools.dashboards.query import Query
from tests.tools.dashboards.units import COUNT, PER_MINUTE, SECONDS

_RETRIES = "runturn_turn_retries_total"
_REATTACHED = "runturn_reattachments_total"
_SETTLED = "runturn_settled_turns_total"

_PROMISES = Section(
    "Unwanted events in the selected range",
    (
        number(
            "Duplicate runs",
            "Agents found running for a replaced attempt. Anything but 0 is a bug.",
            COUNT,
            or_zero(increase("runturn_duplicate_runs_total")),
            steps=ANY_IS_BAD,
            decimals=0,
        ),
        number(
            "Stalled or timed out",
            "Turns that failed because their agent was silent or took too long.",
            COUNT,
            or_zero(booked(_SETTLED, AGENT, 'outcome=~"turn_stalled|turn_timeout|read_timeout"')),
            steps=ANY_IS_ODD,
        ),
        number(
            "Orphans terminated",
            "Agents terminated because no worker followed them for lease_ms.",
            COUNT,
            or_zero(increase("runturn_orphans_ended_total")),
            steps=ANY_IS_ODD,
            decimals=0,
        ),
        number(
            "Dead letters",
            "Current messages that no worker can read. `runturn dead list` shows the reasons.",
            COUNT,
            or_zero("max(runturn_dead_letters)"),
            steps=ANY_IS_ODD,
        ),
        number(
            "Malformed lines",
            "Unreadable output lines of agents. Does an agent have a version that runturn does not know?",
            COUNT,
            or_zero(increase("runturn_malformed_events_total", AGENT)),
            steps=ANY_IS_ODD,
            decimals=0,
        ),
        number(
            "Unreachable",
            "Brokers and ledgers that a process cannot reach now.",
            COUNT,
            or_zero("count(runturn_dependency_up == 0)"),
            steps=ANY_IS_BAD,
        ),
    ),
)

_RETRIED = Section(
    "Retries",
    (
        ranking(
            "Retries by reason",
            "Attempts in the selected range that were followed by another, by the error that ended them.",
            COUNT,
            Query(f"{increase(_RETRIES, AGENT, by='reason')} > 0", "{{reason}}"),
            decimals=0,
        ),
        graph(
            "Retries over time",
            "Attempts per minute that were followed by another, by reason. The dots are turns.",
            PER_MINUTE,
            Query(f"{rate(_RETRIES, AGENT, by='reason', per_s=60)} > 0", "{{reason}}", exemplars=True),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "API retries",
            "Requests per minute that agents retried with their model, by the HTTP status received.",
            PER_MINUTE,
            Query(rate("runturn_api_retries_total", AGENT, by="status", per_s=60), "{{status}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Parked",
            "Turns waiting for their next attempt, by the error that ended the last one; due_later: not due yet.",
            COUNT,
            Query(ledger("runturn_parked_turns", by="reason"), "{{reason}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Reattachments",
            "Reattachments to running turns per minute, after a lost link or by another worker.",
            PER_MINUTE,
            Query(rate(_REATTACHED, by="cause", per_s=60), "{{cause}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Longest silence",
            "Longest current silence of an agent, by worker. At stall_timeout_ms it is terminated.",
            SECONDS,
            Query("max by (instance) (runturn_turn_idle_seconds_max)", "{{instance}}"),
            width=8,
            limit=300,
        ),
    ),
)

_AROUND = Section(
    "Dependencies and processes",
    (
        states(
            "Dependencies",
            "Whether each process can reach the broker and the ledger.",
            Query("min by (dependency, job, instance) (runturn_dependency_up)", "{{dependency}}: {{instance}}"),
        ),
        states(
            "Processes",
            "Whether each process answers Prometheus.",
            Query('max by (job, instance) (up{job=~"runturn-.+"})', "{{job}} {{instance}}"),
        ),
        graph(
            "Duplicate deliveries",
            "Messages per minute for turns already recorded. Brokers redeliver after a lost connection; the turn "
            "still runs once.",
            PER_MINUTE,
            Query(rate("runturn_duplicate_deliveries_total", per_s=60), "redelivered"),
            width=8,
            height=7,
            bars=True,
        ),
        graph(
            "Duplicate runs and orphans",
            "Agents per minute found running for a replaced attempt, or terminated without a worker.",
            PER_MINUTE,
            Query(rate("runturn_duplicate_runs_total", per_s=60), "duplicate runs"),
            Query(rate("runturn_orphans_ended_total", per_s=60), "orphans terminated"),
            width=8,
            height=7,
            bars=True,
        ),
        graph(
            "Malformed and dropped",
            "Unreadable output lines of agents per minute, and events that were not recorded, because an agent "
            "printed too much.",
            PER_MINUTE,
            Query(rate("runturn_malformed_events_total", AGENT, by="agent", per_s=60), "{{agent}}: malformed"),
            Query(rate("runturn_dropped_events_total", AGENT, by="agent", per_s=60), "{{agent}}: dropped"),
            width=8,
            height=7,
            bars=True,
            stacked=True,
        ),
        graph(
            "Refused by budgets",
            "Turns refused by a budget per minute.",
            PER_MINUTE,
            Query(rate("runturn_budget_denials_total", by="budget", per_s=60), "{{budget}}"),
            width=12,
            height=7,
            bars=True,
            stacked=True,
        ),
        graph(
            "Dead letters",
            "Dead letters in the ledger.",
            COUNT,
            Query("max(runturn_dead_letters)", "dead letters"),
            width=12,
            height=7,
        ),
    ),
)

BOARD = Board(
    "reliability",
    "Reliability",
    "Failures that runturn recovered from, and events that must never happen.",
    (_PROMISES, _RETRIED, _AROUND),
    variables=("agent",),
)

"""What went wrong and was put right, and what must never happen."""

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
    "What must not be, in the range shown",
    (
        number(
            "Ran twice",
            "Agents found running for an attempt that was replaced. Anything but 0 is a bug.",
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
            "Orphans ended",
            "Agents that ended because no worker followed them for lease_ms.",
            COUNT,
            or_zero(increase("runturn_orphans_ended_total")),
            steps=ANY_IS_ODD,
            decimals=0,
        ),
        number(
            "Dead letters",
            "Messages that no worker can read, now. `runturn dead list` names the reasons.",
            COUNT,
            or_zero("max(runturn_dead_letters)"),
            steps=ANY_IS_ODD,
        ),
        number(
            "Malformed lines",
            "Lines of agents that could not be read: an agent of a version that runturn does not know?",
            COUNT,
            or_zero(increase("runturn_malformed_events_total", AGENT)),
            steps=ANY_IS_ODD,
            decimals=0,
        ),
        number(
            "Not answering",
            "Brokers and ledgers that do not answer one of the processes now.",
            COUNT,
            or_zero("count(runturn_dependency_up == 0)"),
            steps=ANY_IS_BAD,
        ),
    ),
)

_RETRIED = Section(
    "Tried again",
    (
        ranking(
            "Retries by reason",
            "Attempts in the range shown that another one followed, by the error that ended them.",
            COUNT,
            Query(f"{increase(_RETRIES, AGENT, by='reason')} > 0", "{{reason}}"),
            decimals=0,
        ),
        graph(
            "Retries",
            "Attempts a minute that another one followed, by reason. The dots are turns.",
            PER_MINUTE,
            Query(f"{rate(_RETRIES, AGENT, by='reason', per_s=60)} > 0", "{{reason}}", exemplars=True),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "API retries",
            "Requests a minute that agents sent to their model again, by the status that they had got.",
            PER_MINUTE,
            Query(rate("runturn_api_retries_total", AGENT, by="status", per_s=60), "{{status}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Parked",
            "Turns that wait for their next try, by the error that ended the last one; due_later wait for their "
            "time.",
            COUNT,
            Query(ledger("runturn_parked_turns", by="reason"), "{{reason}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Reattachments",
            "Running turns a minute that were attached to again: after a lost link, or by another worker.",
            PER_MINUTE,
            Query(rate(_REATTACHED, by="cause", per_s=60), "{{cause}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Longest silence",
            "How long the most silent agent of each worker has said nothing. At stall_timeout_ms it is ended.",
            SECONDS,
            Query("max by (instance) (runturn_turn_idle_seconds_max)", "{{instance}}"),
            width=8,
            limit=300,
        ),
    ),
)

_AROUND = Section(
    "Around the workers",
    (
        states(
            "Dependencies",
            "Whether the broker and the ledger answer, as every process sees it.",
            Query("min by (dependency, job, instance) (runturn_dependency_up)", "{{dependency}}: {{instance}}"),
        ),
        states(
            "Processes",
            "Whether every process answers Prometheus.",
            Query('max by (job, instance) (up{job=~"runturn-.+"})', "{{job}} {{instance}}"),
        ),
        graph(
            "Duplicate deliveries",
            "Messages a minute whose turn was known already. Brokers deliver again after a lost connection; the "
            "turn "
            "runs once all the same.",
            PER_MINUTE,
            Query(rate("runturn_duplicate_deliveries_total", per_s=60), "delivered again"),
            width=8,
            height=7,
            bars=True,
        ),
        graph(
            "Ran twice, and orphans",
            "Agents a minute found running for an attempt that was replaced, and agents that no worker followed.",
            PER_MINUTE,
            Query(rate("runturn_duplicate_runs_total", per_s=60), "ran twice"),
            Query(rate("runturn_orphans_ended_total", per_s=60), "orphans ended"),
            width=8,
            height=7,
            bars=True,
        ),
        graph(
            "Malformed lines",
            "Lines of agents a minute that could not be read.",
            PER_MINUTE,
            Query(rate("runturn_malformed_events_total", AGENT, by="agent", per_s=60), "{{agent}}"),
            width=8,
            height=7,
            bars=True,
            stacked=True,
        ),
        graph(
            "Refused by budgets",
            "Turns a minute that a budget did not let start.",
            PER_MINUTE,
            Query(rate("runturn_budget_denials_total", by="budget", per_s=60), "{{budget}}"),
            width=12,
            height=7,
            bars=True,
            stacked=True,
        ),
        graph(
            "Dead letters",
            "Messages that were put aside and are still there.",
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
    "What went wrong and was put right, and what must never happen.",
    (_PROMISES, _RETRIED, _AROUND),
    variables=("agent",),
)

"""What runs, what it costs, what is wrong: for somebody who has a minute and never read the code."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import ANY_IS_BAD, ANY_IS_ODD, GREEN, ORANGE, RED
from tests.tools.dashboards.panels import graph, number, rows
from tests.tools.dashboards.promql import (
    AGENT,
    COMPLETED,
    COUNTED,
    FAILED,
    HOST,
    MODEL,
    booked,
    increase,
    ledger,
    ledger_rate,
    or_zero,
    rate,
    ratio,
    select,
    worst,
)
from tests.tools.dashboards.query import Column, Query
from tests.tools.dashboards.units import BYTES, CORES, COUNT, PER_MINUTE, SECONDS, SHARE, USD, USD_PER_HOUR

_PROCESSES = 'job=~"runturn-.+"'
_FIRING = 'ALERTS{alertname=~"Runturn.+",alertstate="firing"}'
_SETTLED = "runturn_settled_turns_total"
_COST = "runturn_cost_usd_total"


def _of_worker(metric: str) -> str:
    """What a worker says of itself, with the version that it is of."""
    named = f"{metric} * on (job, instance) group_left (version, python) runturn_build_info"
    return f"sum by (instance, version, python) ({named})"


_RUNS = Section(
    "What runs",
    (
        number(
            "Workers",
            "Workers that answer Prometheus. Without one, no turn is taken from the queue.",
            COUNT,
            or_zero('sum(up{job="runturn-worker"})'),
            steps=((None, RED), (1, GREEN)),
            width=3,
        ),
        number(
            "Turns at work",
            "Turns that workers are at now, from claim to settlement.",
            COUNT,
            or_zero("sum(runturn_turns_in_flight)"),
            width=3,
            trend=True,
        ),
        number(
            "Slots taken",
            "Turns at work, of those that the workers may be at. Near 100%, turns wait: add workers or slots.",
            SHARE,
            ratio("sum(runturn_turns_in_flight)", "sum(runturn_worker_slots)"),
            steps=((None, GREEN), (0.9, ORANGE)),
            width=3,
            none="no slots",
        ),
        number(
            "Queued",
            "Turns that could start now and wait for room.",
            COUNT,
            or_zero(ledger("runturn_queued_turns")),
            width=3,
            trend=True,
        ),
        number(
            "Oldest queued",
            "How long the turn at the head of the queue has waited.",
            SECONDS,
            or_zero("max(runturn_oldest_queued_turn_seconds)"),
            steps=((None, GREEN), (300, ORANGE), (1800, RED)),
            width=3,
        ),
        number(
            "Parked",
            "Turns that wait for a time or an event: the next try after an error, or the time they are due.",
            COUNT,
            or_zero(ledger("runturn_parked_turns")),
            width=3,
        ),
        number(
            "Hosts up",
            "Hosts that workers send turns to. A host that keeps failing is left alone for up to a minute.",
            COUNT,
            or_zero(f"sum({worst('runturn_host_up', HOST, by='host')})"),
            steps=((None, RED), (1, GREEN)),
            width=3,
        ),
        number(
            "Completed",
            "Turns that completed in the range shown, by the ledger.",
            COUNT,
            or_zero(booked(_SETTLED, AGENT, COMPLETED)),
            width=3,
        ),
    ),
)

_COSTS = Section(
    "What it costs",
    (
        number(
            "Spent",
            "Cost of all turns in the range shown, as the ledger booked it: failed and retried turns included.",
            USD,
            or_zero(booked(_COST, AGENT, MODEL)),
        ),
        number(
            "A completed turn",
            "All that was spent in the range shown, divided by the turns that completed.",
            USD,
            ratio(booked(_COST, AGENT, MODEL), booked(_SETTLED, AGENT, COMPLETED)),
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
            "Tokens",
            "Billed tokens of all kinds in the range shown.",
            COUNT,
            or_zero(booked("runturn_tokens_total", AGENT, MODEL)),
        ),
        number(
            "Read from the cache",
            "The share of prompt tokens that came from the model's cache, at a tenth of the price.",
            SHARE,
            ratio(
                booked("runturn_tokens_total", AGENT, MODEL, 'type="cache_read"'),
                booked("runturn_tokens_total", AGENT, MODEL, 'type!="output"'),
            ),
            none="no turn",
        ),
        number(
            "Fullest budget",
            "Of the budget that is nearest to its limit: what its period has spent and reserved. At 100%, its "
            "turns fail.",
            SHARE,
            "max((runturn_budget_spent_usd + runturn_budget_reserved_usd) / (runturn_budget_limit_usd > 0))",
            steps=((None, GREEN), (0.8, ORANGE), (1, RED)),
            none="no budget",
        ),
    ),
)

_WRONG = Section(
    "What is wrong",
    (
        number(
            "Alerts",
            "Alerts of runturn that fire now. The table below names them; the runbook says what to do.",
            COUNT,
            or_zero(f"count({_FIRING})"),
            steps=ANY_IS_BAD,
            width=3,
        ),
        number(
            "Failed turns",
            "The share of turns that failed for good in the range shown. Cancelled ones do not count.",
            SHARE,
            ratio(or_zero(booked(_SETTLED, AGENT, FAILED)), booked(_SETTLED, AGENT, COUNTED)),
            steps=((None, GREEN), (0.05, ORANGE), (0.2, RED)),
            width=3,
            none="no turn",
        ),
        number(
            "Hosts left alone",
            "Hosts that at least one worker sends nothing to now, because they keep failing. See the board of "
            "hosts.",
            COUNT,
            or_zero(f"count({worst('runturn_host_up', HOST, by='host')} == 0)"),
            steps=ANY_IS_BAD,
            width=3,
        ),
        number(
            "Not answering",
            "Processes that do not answer Prometheus, and brokers and ledgers that do not answer one of them.",
            COUNT,
            or_zero('count(up{job=~"runturn-.+"} == 0 or runturn_dependency_up == 0)'),
            steps=ANY_IS_BAD,
            width=3,
        ),
        number(
            "Longest silence",
            "How long the most silent agent has said nothing. At stall_timeout_ms (300 s by default) it is ended.",
            SECONDS,
            or_zero("max(runturn_turn_idle_seconds_max)"),
            steps=((None, GREEN), (120, ORANGE), (300, RED)),
            width=3,
        ),
        number(
            "Dead letters",
            "Messages that no worker can read. `runturn dead list` names the reasons.",
            COUNT,
            or_zero("max(runturn_dead_letters)"),
            steps=ANY_IS_ODD,
            width=3,
        ),
        number(
            "Orphans ended",
            "Agents that ended in the range shown because no worker followed them.",
            COUNT,
            or_zero(increase("runturn_orphans_ended_total")),
            steps=ANY_IS_ODD,
            decimals=0,
            width=3,
        ),
        number(
            "Ran twice",
            "Agents found running for an attempt that was replaced, in the range shown. Anything but 0 is a bug.",
            COUNT,
            or_zero(increase("runturn_duplicate_runs_total")),
            steps=ANY_IS_BAD,
            decimals=0,
            width=3,
        ),
        rows(
            "Alerts that fire",
            "Their names and how bad they are. The runbook in docs/operating.md has an entry for each.",
            {"alertname": "Alert", "severity": "Severity"},
            Column("Firing", f"sum by (alertname, severity) ({_FIRING})", COUNT),
            width=6,
            height=8,
            none="nothing fires",
        ),
        graph(
            "Turns at work",
            "Turns that workers are at, and how many they may be at.",
            COUNT,
            Query("sum(runturn_turns_in_flight)", "at work"),
            Query("sum(runturn_worker_slots)", "slots"),
            Query(ledger("runturn_queued_turns"), "queued"),
            width=6,
        ),
        graph(
            "Turns that ended",
            "Turns settled a minute, by outcome: completed, or the error that they failed with.",
            PER_MINUTE,
            Query(
                f"{rate('runturn_turns_total', AGENT, by='outcome', per_s=60)} > 0", "{{outcome}}", exemplars=True
            ),
            width=6,
            stacked=True,
            bars=True,
        ),
        graph(
            "Spend rate",
            "Dollars an hour, by model.",
            USD_PER_HOUR,
            Query(ledger_rate(_COST, AGENT, MODEL, by="model", per_s=3600), "{{model}}"),
            width=6,
            stacked=True,
        ),
    ),
)

_PROCESS = Section(
    "Processes",
    (
        rows(
            "Workers",
            "Every worker: its version, its load, its event loop, its memory. A loop that is late by more than a "
            "second "
            "is a worker with too much to do.",
            {"instance": "Worker", "version": "Version", "python": "Python"},
            Column("Turns", _of_worker("runturn_turns_in_flight"), COUNT),
            Column("Slots", _of_worker("runturn_worker_slots"), COUNT),
            Column(
                "Loop lag",
                _of_worker("runturn_loop_lag_seconds"),
                SECONDS,
                ((None, GREEN), (0.5, ORANGE), (1, RED)),
            ),
            Column("Memory", _of_worker('process_resident_memory_bytes{job="runturn-worker"}'), BYTES),
            Column("Open files", _of_worker('process_open_fds{job="runturn-worker"}'), COUNT),
            Column("Up for", _of_worker('(time() - process_start_time_seconds{job="runturn-worker"})'), SECONDS),
            height=6,
        ),
        graph(
            "CPU",
            "Cores that each process uses. Agents on this machine are processes of their own and do not count.",
            CORES,
            Query(
                rate("process_cpu_seconds_total", _PROCESSES, by="job, instance"),
                "{{job}} {{instance}}",
            ),
            width=8,
        ),
        graph(
            "Memory",
            "Memory that each process holds.",
            BYTES,
            Query(select("process_resident_memory_bytes", _PROCESSES), "{{job}} {{instance}}"),
            width=8,
        ),
        graph(
            "Event loop lag",
            "The longest that each worker's event loop was late within the last 15 s. All its turns share that "
            "loop.",
            SECONDS,
            Query("runturn_loop_lag_seconds", "{{instance}}"),
            width=8,
            limit=1,
        ),
    ),
)

BOARD = Board(
    "fleet",
    "Fleet now",
    "What runs, what it costs, and what is wrong.",
    (_RUNS, _COSTS, _WRONG, _PROCESS),
    variables=("agent", "model", "host"),
    since="now-1h",
    refresh="10s",
)

"""The fleet at a glance: activity, cost and problems, for readers who do not know the code."""

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
    """Return a query for a metric by worker, with the worker's version."""
    named = f"{metric} * on (job, instance) group_left (version, python) runturn_build_info"
    return f"sum by (instance, version, python) ({named})"


_RUNS = Section(
    "Activity",
    (
        number(
            "Workers",
            "Workers that answer Prometheus. Without one, no turn leaves the queue.",
            COUNT,
            or_zero('sum(up{job="runturn-worker"})'),
            steps=((None, RED), (1, GREEN)),
            width=3,
        ),
        number(
            "Running turns",
            "Turns that workers are running, from claim to settlement.",
            COUNT,
            or_zero("sum(runturn_turns_in_flight)"),
            width=3,
            trend=True,
        ),
        number(
            "Slots used",
            "Running turns as a share of worker slots. Near 100%, turns wait: add workers or slots.",
            SHARE,
            ratio("sum(runturn_turns_in_flight)", "sum(runturn_worker_slots)"),
            steps=((None, GREEN), (0.9, ORANGE)),
            width=3,
            none="no slots",
        ),
        number(
            "Queued",
            "Turns ready to start that wait for a free slot.",
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
            "Turns waiting for a time or an event: their next attempt after an error, or the time they are due.",
            COUNT,
            or_zero(ledger("runturn_parked_turns")),
            width=3,
        ),
        number(
            "Hosts up",
            "Hosts that workers send turns to. A failing host is avoided for up to a minute.",
            COUNT,
            or_zero(f"sum({worst('runturn_host_up', HOST, by='host')})"),
            steps=((None, RED), (1, GREEN)),
            width=3,
        ),
        number(
            "Completed",
            "Turns completed in the selected range, according to the ledger.",
            COUNT,
            or_zero(booked(_SETTLED, AGENT, COMPLETED)),
            width=3,
        ),
    ),
)

_COSTS = Section(
    "Cost",
    (
        number(
            "Spent",
            "Cost of all turns in the selected range, as booked in the ledger, failed and retried turns included.",
            USD,
            or_zero(booked(_COST, AGENT, MODEL)),
        ),
        number(
            "Cost per completed turn",
            "Total cost in the selected range divided by the number of completed turns.",
            USD,
            ratio(booked(_COST, AGENT, MODEL), booked(_SETTLED, AGENT, COMPLETED)),
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
            "Tokens",
            "Billed tokens of all kinds in the selected range.",
            COUNT,
            or_zero(booked("runturn_tokens_total", AGENT, MODEL)),
        ),
        number(
            "Cache hit ratio",
            "Share of prompt tokens read from the model's cache, at a tenth of the price.",
            SHARE,
            ratio(
                booked("runturn_tokens_total", AGENT, MODEL, 'type="cache_read"'),
                booked("runturn_tokens_total", AGENT, MODEL, 'type!="output"'),
            ),
            none="no turn",
        ),
        number(
            "Fullest budget",
            "Spent and reserved share of the budget closest to its limit. At 100%, its turns fail.",
            SHARE,
            "max((runturn_budget_spent_usd + runturn_budget_reserved_usd) / (runturn_budget_limit_usd > 0))",
            steps=((None, GREEN), (0.8, ORANGE), (1, RED)),
            none="no budget",
        ),
    ),
)

_WRONG = Section(
    "Problems",
    (
        number(
            "Alerts",
            "Firing alerts of runturn. The table below lists them; the runbook says what to do.",
            COUNT,
            or_zero(f"count({_FIRING})"),
            steps=ANY_IS_BAD,
            width=3,
        ),
        number(
            "Failed turns",
            "Share of turns that failed permanently in the selected range. Cancelled turns do not count.",
            SHARE,
            ratio(or_zero(booked(_SETTLED, AGENT, FAILED)), booked(_SETTLED, AGENT, COUNTED)),
            steps=((None, GREEN), (0.05, ORANGE), (0.2, RED)),
            width=3,
            none="no turn",
        ),
        number(
            "Hosts avoided",
            "Hosts that a worker is avoiding now because they keep failing. See the board Hosts and SSH.",
            COUNT,
            or_zero(f"count({worst('runturn_host_up', HOST, by='host')} == 0)"),
            steps=ANY_IS_BAD,
            width=3,
        ),
        number(
            "Unreachable",
            "Processes that do not answer Prometheus, and brokers and ledgers that a process cannot reach.",
            COUNT,
            or_zero('count(up{job=~"runturn-.+"} == 0 or runturn_dependency_up == 0)'),
            steps=ANY_IS_BAD,
            width=3,
        ),
        number(
            "Longest silence",
            "Longest current silence of an agent. At stall_timeout_ms (300 s by default) it is terminated.",
            SECONDS,
            or_zero("max(runturn_turn_idle_seconds_max)"),
            steps=((None, GREEN), (120, ORANGE), (300, RED)),
            width=3,
        ),
        number(
            "Dead letters",
            "Messages that no worker can read. `runturn dead list` shows the reasons.",
            COUNT,
            or_zero("max(runturn_dead_letters)"),
            steps=ANY_IS_ODD,
            width=3,
        ),
        number(
            "Orphans terminated",
            "Agents terminated in the selected range because no worker followed them.",
            COUNT,
            or_zero(increase("runturn_orphans_ended_total")),
            steps=ANY_IS_ODD,
            decimals=0,
            width=3,
        ),
        number(
            "Duplicate runs",
            "Agents found running for a replaced attempt in the selected range. Anything but 0 is a bug.",
            COUNT,
            or_zero(increase("runturn_duplicate_runs_total")),
            steps=ANY_IS_BAD,
            decimals=0,
            width=3,
        ),
        rows(
            "Firing alerts",
            "Firing alerts and their severity. The runbook in docs/operating.md has an entry for each.",
            {"alertname": "Alert", "severity": "Severity"},
            Column("Firing", f"sum by (alertname, severity) ({_FIRING})", COUNT),
            width=6,
            height=8,
            none="none",
        ),
        graph(
            "Running turns",
            "Running turns, worker slots, and queued turns.",
            COUNT,
            Query("sum(runturn_turns_in_flight)", "running"),
            Query("sum(runturn_worker_slots)", "slots"),
            Query(ledger("runturn_queued_turns"), "queued"),
            width=6,
        ),
        graph(
            "Finished turns",
            "Turns settled per minute, by outcome: completed, or the error kind.",
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
            "Dollars per hour, by model.",
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
            "Version, load, event loop lag and memory of each worker. A lag of more than a second means that the "
            "worker is overloaded. Its clock should be the ledger's to within 5 s.",
            {"instance": "Worker", "version": "Version", "python": "Python"},
            Column("Turns", _of_worker("runturn_turns_in_flight"), COUNT),
            Column("Slots", _of_worker("runturn_worker_slots"), COUNT),
            Column(
                "Loop lag",
                _of_worker("runturn_loop_lag_seconds"),
                SECONDS,
                ((None, GREEN), (0.5, ORANGE), (1, RED)),
            ),
            Column(
                "Clock off",
                _of_worker("abs(runturn_clock_ahead_seconds)"),
                SECONDS,
                ((None, GREEN), (5, RED)),
            ),
            Column("Memory", _of_worker('process_resident_memory_bytes{job="runturn-worker"}'), BYTES),
            Column("Open files", _of_worker('process_open_fds{job="runturn-worker"}'), COUNT),
            Column("Uptime", _of_worker('(time() - process_start_time_seconds{job="runturn-worker"})'), SECONDS),
            height=6,
        ),
        graph(
            "CPU",
            "Cores used by each process. Agents on the same machine are separate processes and do not count.",
            CORES,
            Query(
                rate("process_cpu_seconds_total", _PROCESSES, by="job, instance"),
                "{{job}} {{instance}}",
            ),
            width=8,
        ),
        graph(
            "Memory",
            "Memory used by each process.",
            BYTES,
            Query(select("process_resident_memory_bytes", _PROCESSES), "{{job}} {{instance}}"),
            width=8,
        ),
        graph(
            "Event loop lag",
            "Longest delay of each worker's event loop in the last 15 s. All its turns share that loop.",
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
    "Activity, cost, and problems of the fleet.",
    (_RUNS, _COSTS, _WRONG, _PROCESS),
    variables=("agent", "model", "host"),
    since="now-1h",
    refresh="10s",
)

"""Hosts, their slots and their SSH connections."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import ANY_IS_BAD, GREEN, ORANGE, RED
from tests.tools.dashboards.panels import distribution, graph, number, ranking, rows, states
from tests.tools.dashboards.promql import (
    HOST,
    buckets,
    fullest,
    increase,
    mean,
    or_zero,
    quantile,
    rate,
    ratio,
    select,
    worst,
)
from tests.tools.dashboards.query import Column, Query
from tests.tools.dashboards.units import BYTES, CORES, COUNT, PER_MINUTE, SECONDS, SHARE

_UP = worst("runturn_host_up", HOST, by="host")
# Every worker knows how many agents a host may run; only the ledger knows how many are running.
_SLOTS = fullest("runturn_host_slots", HOST, by="host")
_USED = fullest("runturn_host_slots_in_use", HOST, by="host")
_CONNECTIONS = f"sum by (host) (runturn_ssh_connections{{{HOST}}})"
_CONNECTS = "runturn_ssh_connects_total"
_CONNECT = "runturn_ssh_connect_duration_seconds"
_CPU = "runturn_agent_cpu_seconds_total"
_SHORT = "runturn_host_memory_short_total"
_MEMORY = "runturn_attempt_peak_memory_bytes"
_REFUSED = 'outcome!="ok"'
_STEPS = ((None, GREEN), (0.9, ORANGE), (1.01, RED))

_NOW = Section(
    "Now",
    (
        number(
            "Hosts",
            "Hosts known to the workers.",
            COUNT,
            or_zero(f"count({_UP})"),
        ),
        number(
            "Avoided",
            "Hosts that a worker is avoiding now because they keep failing.",
            COUNT,
            or_zero(f"count({_UP} == 0)"),
            steps=ANY_IS_BAD,
        ),
        number(
            "Agents",
            "Agents that occupy a host slot, according to the ledger.",
            COUNT,
            or_zero(f"sum({_USED})"),
            trend=True,
        ),
        number(
            "Slots used",
            "Agents as a share of the slots of all hosts that have a limit.",
            SHARE,
            ratio(or_zero(f"sum({_USED} and {_SLOTS})"), f"sum({_SLOTS})"),
            steps=((None, GREEN), (0.9, ORANGE)),
            none="no limit",
        ),
        number(
            "SSH connections",
            "Connections that the workers keep open. Each carries up to eight agents.",
            COUNT,
            or_zero(f"sum(runturn_ssh_connections{{{HOST}}})"),
            trend=True,
        ),
        number(
            "Mean connect time",
            "Mean time to connect and log in, in the selected range.",
            SECONDS,
            mean(_CONNECT),
            none="none",
        ),
        rows(
            "Hosts",
            "All hosts: 1 is up, 0 is avoided. Hosts without a limit have no slots. Connections are counted in "
            "the selected range.",
            {"host": "Host"},
            Column("Up", _UP, COUNT, ((None, RED), (1, GREEN))),
            Column("Agents", f"{_USED} or {_UP} * 0", COUNT),
            Column("Slots", _SLOTS, COUNT),
            Column("Used", ratio(f"{_USED} or {_SLOTS} * 0", _SLOTS), SHARE, _STEPS),
            Column("SSH connections", _CONNECTIONS, COUNT),
            Column("Connected", increase(_CONNECTS, HOST, 'outcome="ok"', by="host"), COUNT, decimals=0),
            Column(
                "Failed", increase(_CONNECTS, HOST, _REFUSED, by="host"), COUNT, ((None, GREEN), (0.5, RED)), 0
            ),
            width=16,
            height=8,
        ),
        ranking(
            "Slots used",
            "Agents as a share of each host's slots.",
            SHARE,
            Query(ratio(f"{_USED} or {_SLOTS} * 0", _SLOTS), "{{host}}"),
            steps=_STEPS,
            top=1,
        ),
        rows(
            "Agent versions",
            "Version of each agent on each host, as workers last saw it. Unproved versions run; unsupported ones "
            "are refused unless the operator allows them.",
            {"agent": "Agent", "host": "Host", "version": "Version", "standing": "Standing"},
            Column("Workers", f"count by (agent, host, version, standing) (runturn_agent_info{{{HOST}}})", COUNT),
        ),
    ),
)

_TIME = Section(
    "Over time",
    (
        states(
            "Hosts",
            "A host is down if at least one worker is avoiding it because it keeps failing.",
            Query(_UP, "{{host}}"),
            height=8,
        ),
        graph(
            "Agents by host",
            "Agents that occupy a slot, according to the ledger.",
            COUNT,
            Query(f"{_USED} or {_UP} * 0", "{{host}}"),
            stacked=True,
        ),
        graph(
            "CPU of agents by host",
            "Cores that the agents and tools of the last hour kept busy on average. CPU time is counted when an "
            "attempt ends. Leftover processes that the host terminated are not included.",
            CORES,
            Query(f"sum by (host) (increase({select(_CPU, HOST)}[1h])) / 3600", "{{host}}"),
            width=12,
            stacked=True,
        ),
        graph(
            "Peak memory of turns",
            "Median and 95th percentile of the peak memory of an agent and its tools, as sampled. Turns of a few "
            "seconds are not sampled.",
            BYTES,
            *(Query(quantile(q, _MEMORY), f"p{q * 100:.0f}") for q in (0.5, 0.95)),
            width=12,
        ),
        graph(
            "Shortages of memory",
            "Attempts that saw less than 5 % of their host's memory available.",
            COUNT,
            Query(f"sum by (host) (increase({select(_SHORT, HOST)}[$__rate_interval]))", "{{host}}"),
            width=24,
        ),
        graph(
            "SSH connections",
            "Connections that the workers keep open, by host.",
            COUNT,
            Query(_CONNECTIONS, "{{host}}"),
            width=8,
        ),
        graph(
            "Connection attempts",
            "Attempts to connect and log in per minute, by outcome. After host_key_changed, nothing runs there "
            "until an operator has checked the host.",
            PER_MINUTE,
            Query(rate(_CONNECTS, HOST, by="outcome", per_s=60), "{{outcome}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Failed connections by host",
            "Failed connection attempts per minute.",
            PER_MINUTE,
            Query(rate(_CONNECTS, HOST, _REFUSED, by="host", per_s=60), "{{host}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
        graph(
            "Connect time",
            "Median and 95th percentile of successful connects, login included.",
            SECONDS,
            *(Query(quantile(q, _CONNECT), f"p{q * 100:.0f}") for q in (0.5, 0.95)),
            width=8,
        ),
        distribution(
            "Connect time distribution",
            "Number of connects by duration.",
            SECONDS,
            Query(buckets(_CONNECT), "{{le}}"),
            width=8,
        ),
        graph(
            "Reattachments",
            "Reattachments to running turns per minute, after a lost link or by another worker.",
            PER_MINUTE,
            Query(rate("runturn_reattachments_total", by="cause", per_s=60), "{{cause}}"),
            width=8,
            bars=True,
            stacked=True,
        ),
    ),
)

BOARD = Board(
    "hosts",
    "Hosts and SSH",
    "Hosts, their slots, and their SSH connections.",
    (_NOW, _TIME),
    variables=("host",),
)

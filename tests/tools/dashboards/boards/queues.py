"""Waiting turns, the reasons, and whether the fleet keeps up."""

from __future__ import annotations

from tests.tools.dashboards.board import Board, Section
from tests.tools.dashboards.colours import ANY_IS_ODD, GREEN, ORANGE, RED
from tests.tools.dashboards.panels import distribution, graph, number, ranking
from tests.tools.dashboards.promql import buckets, ledger, ledger_rate, or_zero, quantile, ratio
from tests.tools.dashboards.query import Query
from tests.tools.dashboards.units import COUNT, PER_MINUTE, SECONDS, SHARE

_QUEUED = "runturn_queued_turns"
_OLDEST = "runturn_oldest_queued_turn_seconds"
_WAIT = "runturn_turn_queue_wait_seconds"
_SETTLED = ledger_rate("runturn_settled_turns_total", per_s=60)

_NOW = Section(
    "Now",
    (
        number(
            "Queued",
            "Turns ready to start that wait for a free slot.",
            COUNT,
            or_zero(ledger(_QUEUED)),
            trend=True,
        ),
        number(
            "Oldest queued",
            "How long the turn at the head of the queue has waited.",
            SECONDS,
            or_zero(f"max({_OLDEST})"),
            steps=((None, GREEN), (300, ORANGE), (1800, RED)),
        ),
        number(
            "Parked",
            "Turns waiting for a time or an event: their next attempt after an error, or the time they are due.",
            COUNT,
            or_zero(ledger("runturn_parked_turns")),
        ),
        number(
            "Free slots",
            "Turns that the workers could take now.",
            COUNT,
            or_zero("sum(runturn_worker_slots) - sum(runturn_turns_in_flight)"),
            steps=((None, ORANGE), (1, GREEN)),
        ),
        number(
            "Time to empty",
            "Time until the queue is empty at the current rate, if no turn arrives.",
            SECONDS,
            f"60 * {ratio(ledger(_QUEUED), _SETTLED)}",
            none="none settled",
        ),
        number(
            "Dead letters",
            "Messages that no worker can read. `runturn dead list` shows the reasons.",
            COUNT,
            or_zero("max(runturn_dead_letters)"),
            steps=ANY_IS_ODD,
        ),
    ),
)

_TIME = Section(
    "Over time",
    (
        graph(
            "Queued",
            "Turns ready to start that wait for a free slot, by queue.",
            COUNT,
            Query(ledger(_QUEUED, by="queue"), "{{queue}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Oldest queued",
            "How long the turn at the head of each queue has waited.",
            SECONDS,
            Query(f"max by (queue) ({_OLDEST})", "{{queue}}"),
            width=8,
            limit=1800,
        ),
        graph(
            "Parked",
            "Parked turns by reason: the error after which they are retried, or the time they are due.",
            COUNT,
            Query(ledger("runturn_parked_turns", by="reason"), "{{reason}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Queue wait",
            "Time from when a turn could start to its first claim: median and 95th percentile.",
            SECONDS,
            *(
                Query(quantile(q, _WAIT, by="queue"), f"p{q * 100:.0f} {{{{queue}}}}", exemplars=q == 0.5)
                for q in (0.5, 0.95)
            ),
            width=8,
        ),
        distribution(
            "Queue wait distribution",
            "Number of turns by queue wait.",
            SECONDS,
            Query(buckets(_WAIT), "{{le}}", exemplars=True),
            width=8,
        ),
        graph(
            "Claimed and settled",
            "Turns claimed and turns settled per minute. If fewer are settled than claimed, turns are getting "
            "longer; if the queue also grows, the fleet is too small.",
            PER_MINUTE,
            Query(f"sum(rate({_WAIT}_count[$__rate_interval])) * 60", "claimed"),
            Query(_SETTLED, "settled"),
            width=8,
        ),
        graph(
            "Slots used",
            "Running turns as a share of worker slots.",
            SHARE,
            Query(ratio("sum(runturn_turns_in_flight)", "sum(runturn_worker_slots)"), "used"),
            width=8,
            top=1,
            limit=0.9,
        ),
        graph(
            "Dead letters",
            "Dead letters in the ledger.",
            COUNT,
            Query("max(runturn_dead_letters)", "dead letters"),
            width=8,
        ),
        ranking(
            "Parked now",
            "Parked turns by reason.",
            COUNT,
            Query(ledger("runturn_parked_turns", by="reason"), "{{reason}}"),
        ),
    ),
)

BOARD = Board("queues", "Queues", "Waiting turns, the reasons, and whether the fleet keeps up.", (_NOW, _TIME))

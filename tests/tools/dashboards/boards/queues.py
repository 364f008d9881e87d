"""What waits, for what, and whether the fleet keeps up."""

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
            "Queued", "Turns that could start now and wait for room.", COUNT, or_zero(ledger(_QUEUED)), trend=True
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
            "Turns that wait for a time or an event: the next try after an error, or the time they are due.",
            COUNT,
            or_zero(ledger("runturn_parked_turns")),
        ),
        number(
            "Slots free",
            "Turns that the workers could take now.",
            COUNT,
            or_zero("sum(runturn_worker_slots) - sum(runturn_turns_in_flight)"),
            steps=((None, ORANGE), (1, GREEN)),
        ),
        number(
            "Empty in",
            "How long the queue would take to empty at the rate of now, if no turn came.",
            SECONDS,
            f"60 * {ratio(ledger(_QUEUED), _SETTLED)}",
            none="no turn ends",
        ),
        number(
            "Dead letters",
            "Messages that no worker can read. `runturn dead list` names the reasons.",
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
            "Turns that could start and wait for room, by queue.",
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
            "Turns that wait, by what for: the error after which they are tried again, or the time they are due.",
            COUNT,
            Query(ledger("runturn_parked_turns", by="reason"), "{{reason}}"),
            width=8,
            stacked=True,
        ),
        graph(
            "Wait in the queue",
            "From the time a turn could start to its first claim: what half and 95% of the turns did not exceed.",
            SECONDS,
            *(
                Query(quantile(q, _WAIT, by="queue"), f"p{q * 100:.0f} {{{{queue}}}}", exemplars=q == 0.5)
                for q in (0.5, 0.95)
            ),
            width=8,
        ),
        distribution(
            "Waits in the queue",
            "How many turns waited how long.",
            SECONDS,
            Query(buckets(_WAIT), "{{le}}", exemplars=True),
            width=8,
        ),
        graph(
            "Taken and settled",
            "Turns a minute that workers took from the queue, and turns that ended. If fewer end than are taken, "
            "turns become longer; if the queue grows as well, the fleet is too small.",
            PER_MINUTE,
            Query(f"sum(rate({_WAIT}_count[$__rate_interval])) * 60", "taken"),
            Query(_SETTLED, "settled"),
            width=8,
        ),
        graph(
            "Slots taken",
            "Turns at work, of those that the workers may be at.",
            SHARE,
            Query(ratio("sum(runturn_turns_in_flight)", "sum(runturn_worker_slots)"), "taken"),
            width=8,
            top=1,
            limit=0.9,
        ),
        graph(
            "Dead letters",
            "Messages that were put aside and are still there.",
            COUNT,
            Query("max(runturn_dead_letters)", "dead letters"),
            width=8,
        ),
        ranking(
            "Parked now",
            "Turns that wait, by what for.",
            COUNT,
            Query(ledger("runturn_parked_turns", by="reason"), "{{reason}}"),
        ),
    ),
)

BOARD = Board("queues", "Queues", "What waits, for what, and whether the fleet keeps up.", (_NOW, _TIME))

"""Metrics of the whole fleet, from the ledger."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ops.errors import LedgerUnavailable
from ops.ledger import Backlog, Budget, FailureTotals, Ledger, ModelTotals, OutcomeTotals, Totals
from ops.metrics.labels import OTHER, Vocabulary

_Key = tuple[str, ...]

_UNKNOWN = "unknown"  # a version that neither host nor agent reported
_VERSIONS = 5  # per agent; those that failed longer ago are merged
_PATIENCE_S = 2.0  # for another scrape in progress

log = structlog.get_logger(__name__)


class LedgerCollector(Collector):
    """Tokens, money, queue and budgets from the ledger: exact across crashes, never estimates.

    Serve them once per ledger, or sums over instances count them several times.
    """

    def __init__(
        self,
        ledger: Ledger,
        vocabulary: Vocabulary,
        clock: Callable[[], float],
        answers: Callable[[], bool] = lambda: True,
    ) -> None:
        """Skip the ledger while `answers` is false: the rest of the page must not wait for it."""
        self._ledger = ledger
        self._words = vocabulary
        self._clock = clock
        self._answers = answers
        self._asking = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        """Read the ledger. If it is unavailable, leave a gap in the series and serve the rest of the page."""
        if not self._answers() or not self._asking.acquire(timeout=_PATIENCE_S):
            return []
        try:
            now = self._clock()
            reports, budgets = self._ledger.reports, self._ledger.budgets
            return list(_families(reports.totals(), reports.backlog(now), budgets.all_of(now), self._words, now))
        except LedgerUnavailable as error:
            log.warning("serving metrics without the ledger", error=str(error))
            return []
        finally:
            self._asking.release()

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without reading the ledger."""
        return _described()


def exported() -> tuple[str, ...]:
    """Return the names of all metrics of a collector, counters without `_total`."""
    return tuple(metric.name for metric in _described())


def _described() -> Iterable[Metric]:
    """Return the metrics of an empty ledger."""
    return _families(Totals((), ()), Backlog(0, None, {}, {}, 0), (), Vocabulary(), 0.0)


def _families(
    totals: Totals, backlog: Backlog, budgets: Iterable[Budget], words: Vocabulary, now: float
) -> Iterable[Metric]:
    yield from _used(totals.models, words)
    yield _settled(totals.outcomes, words)
    yield from _spent_in_vain(totals.failures, words)
    yield from _backlog(backlog, words.queue, now)
    yield from _budgets(budgets, now)


def _used(models: Iterable[ModelTotals], words: Vocabulary) -> Iterable[Metric]:
    tokens: dict[_Key, int] = defaultdict(int)
    cost: dict[_Key, float] = defaultdict(float)
    unpriced: dict[_Key, int] = defaultdict(int)
    for row in models:
        if row.observed:
            key = (words.agent(row.agent), words.model(row.agent, row.model))
            tokens[*key, "input"] += row.tokens.input_tokens
            tokens[*key, "output"] += row.tokens.output_tokens
            tokens[*key, "cache_read"] += row.tokens.cache_read_input_tokens
            tokens[*key, "cache_creation"] += row.tokens.cache_creation_input_tokens
            unpriced[key] += row.unpriced_tokens
            if row.cost_usd is not None:  # unpriced is not $0
                cost[key] += row.cost_usd
    yield _counters("tokens", "Billed tokens", ("agent", "model", "type"), tokens)
    yield _counters("cost_usd", "Cost of billed tokens that have a price", ("agent", "model"), cost)
    yield _counters("unpriced_tokens", "Billed tokens without a price", ("agent", "model"), unpriced)


def _settled(outcomes: Iterable[OutcomeTotals], words: Vocabulary) -> Metric:
    turns: dict[_Key, int] = defaultdict(int)
    for row in outcomes:
        turns[words.agent(row.agent), row.outcome] += row.turns
    return _counters("settled_turns", "Settled turns", ("agent", "outcome"), turns)


def _spent_in_vain(failures: Iterable[FailureTotals], words: Vocabulary) -> Iterable[Metric]:
    """Yield the usage of failed attempts. A version merged into `other` brings its sum: none is lost."""
    tokens: dict[_Key, int] = defaultdict(int)
    cost: dict[_Key, float] = defaultdict(float)
    shown: dict[str, list[str]] = defaultdict(list)
    for row in sorted(failures, key=lambda row: (-row.booked_at, row.agent_version)):
        agent, version = (
            words.agent(row.agent),
            words.version(row.agent_version) if row.agent_version else _UNKNOWN,
        )
        versions = shown[agent]
        if version not in (*versions, OTHER) and len(versions) < _VERSIONS:
            versions.append(version)
        key = (agent, version if version in versions else OTHER, row.outcome)
        tokens[key] += row.tokens
        if row.cost_usd is not None:
            cost[key] += row.cost_usd
    labels = ("agent", "version", "outcome")
    yield _counters("failed_attempt_tokens", "Billed tokens of attempts that did not complete", labels, tokens)
    yield _counters(
        "failed_attempt_cost_usd",
        "Cost of attempts that did not complete, for tokens that have a price",
        labels,
        cost,
    )


def _backlog(backlog: Backlog, name: str, now: float) -> Iterable[Metric]:
    oldest_s = 0.0 if backlog.ready_since is None else max(0.0, now - backlog.ready_since)
    queue, reason, host = ("queue",), ("reason",), ("host",)
    yield _gauges("queued_turns", "Turns ready to start", queue, {(name,): backlog.ready})
    yield _gauges(
        "oldest_queued_turn_seconds",
        "How long the oldest queued turn has been ready to start",
        queue,
        {(name,): oldest_s},
    )
    yield _gauges("parked_turns", "Turns waiting for a later time", reason, _keyed(backlog.parked))
    yield _gauges("host_slots_in_use", "Open attempts on a host", host, _keyed(backlog.open_attempts))
    yield _gauges("dead_letters", "Messages that no worker could read", (), {(): backlog.dead_letters})


def _budgets(budgets: Iterable[Budget], now: float) -> Iterable[Metric]:
    known: dict[_Key, Budget] = {(str(budget.key),): budget for budget in budgets}
    starts = {key: budget.period.start(now) for key, budget in known.items() if budget.resets_at is not None}
    ends = {key: budget.resets_at for key, budget in known.items() if budget.resets_at is not None}
    limits = {key: budget.limit_usd for key, budget in known.items()}
    spent = {key: budget.spent_usd for key, budget in known.items()}
    reserved = {key: budget.reserved_usd for key, budget in known.items()}
    label = ("budget",)
    yield _gauges("budget_limit_usd", "Limit on the cost of a label's turns per period", label, limits)
    yield _gauges("budget_spent_usd", "Cost of finished attempts in the current period", label, spent)
    yield _gauges("budget_reserved_usd", "Amount reserved by open attempts", label, reserved)
    yield _gauges("budget_period_start_timestamp_seconds", "Start of the current period", label, starts)
    yield _gauges("budget_period_end_timestamp_seconds", "End of the current period", label, ends)


def _keyed(counts: Mapping[str, int]) -> dict[_Key, float]:
    return {(name,): count for name, count in counts.items()}


def _counters(name: str, text: str, labels: tuple[str, ...], values: Mapping[_Key, float]) -> Metric:
    family = CounterMetricFamily(f"runturn_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _gauges(name: str, text: str, labels: tuple[str, ...], values: Mapping[_Key, float]) -> Metric:
    family = GaugeMetricFamily(f"runturn_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family

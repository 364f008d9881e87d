"""What Prometheus reads."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from accounts import a_usage, completed
from prometheus_client.parser import text_string_to_metric_families

from adapters.usage import UsageSource
from ops.errors import LedgerUnavailable, PortTaken
from ops.ledger import Ledger, Totals
from ops.metrics import LedgerCollector, MetricsServer, WorkerMetrics, new_registry

Labels = tuple[tuple[str, str], ...]


def scrape(url: str) -> dict[tuple[str, Labels], float]:
    with urllib.request.urlopen(url) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }


def test_worker_counts_what_it_saw() -> None:
    registry = new_registry()
    metrics = WorkerMetrics(registry)
    metrics.turn_claimed()
    metrics.turn_claimed()
    metrics.turn_let_go()
    metrics.turn_settled("claude-code", "local", "completed", 90.0)
    metrics.turn_retried("claude-code", "overloaded")
    metrics.lines_malformed("claude-code", 3)
    with MetricsServer(registry, "127.0.0.1", 0) as server:
        samples = scrape(server.url)
    agent = ("agent", "claude-code")
    turn = (agent, ("launcher", "local"), ("outcome", "completed"))
    assert samples["runturn_turns_in_flight", ()] == 1
    assert samples["runturn_turns_total", turn] == 1
    assert samples["runturn_turn_duration_seconds_sum", (agent,)] == 90.0
    assert samples["runturn_turn_duration_seconds_bucket", (agent, ("le", "60.0"))] == 0
    assert samples["runturn_turn_duration_seconds_bucket", (agent, ("le", "120.0"))] == 1
    assert samples["runturn_turn_duration_seconds_bucket", (agent, ("le", "7200.0"))] == 1
    assert samples["runturn_turn_retries_total", (agent, ("reason", "overloaded"))] == 1
    assert samples["runturn_malformed_events_total", (agent,)] == 3


def test_two_workers_in_one_process_share_nothing() -> None:
    first, second = new_registry(), new_registry()
    WorkerMetrics(first).turn_claimed()
    WorkerMetrics(second)
    assert first.get_sample_value("runturn_turns_in_flight") == 1
    assert second.get_sample_value("runturn_turns_in_flight") == 0


def test_tokens_and_money_come_from_the_books(ledger: Ledger) -> None:
    completed(ledger, "t1", a_usage(0.1))
    completed(ledger, "t2", a_usage(0.2))
    completed(ledger, "t3", a_usage(None, UsageSource.STREAM))
    completed(ledger, "t4", a_usage(None, model="unpriced"))
    registry = new_registry()
    registry.register(LedgerCollector(ledger))
    with MetricsServer(registry, "127.0.0.1", 0) as server:
        samples = scrape(server.url)
    opus = (("agent", "claude-code"), ("model", "opus"))
    tokens = {
        labels[2][1]: value for (name, labels), value in samples.items() if labels[:2] == opus and labels[2:]
    }
    assert tokens == {"input": 200, "output": 40, "cache_read": 6000, "cache_creation": 800}
    assert samples["runturn_cost_usd_total", opus] == pytest.approx(0.3, abs=1e-12)
    assert ("runturn_cost_usd_total", (("agent", "claude-code"), ("model", "unpriced"))) not in samples


def test_page_survives_a_ledger_that_is_away() -> None:
    class Away:
        def totals(self) -> Totals:
            raise LedgerUnavailable("gone")

    registry = new_registry()
    registry.register(LedgerCollector(Away()))  # type: ignore[arg-type]
    WorkerMetrics(registry)
    with MetricsServer(registry, "127.0.0.1", 0) as server:
        samples = scrape(server.url)
    assert samples == {("runturn_turns_in_flight", ()): 0.0}


def test_port_that_is_taken_fails_loudly() -> None:
    with (
        MetricsServer(new_registry(), "127.0.0.1", 0) as server,
        pytest.raises(
            PortTaken, match=rf"127\.0\.0\.1:{server.port}: Address already in use; set RUNTURN_METRICS_PORT"
        ),
    ):
        MetricsServer(new_registry(), "127.0.0.1", server.port)


def test_closed_server_answers_no_more() -> None:
    server = MetricsServer(new_registry(), "127.0.0.1", 0)
    assert scrape(server.url) == {}
    server.close()
    with pytest.raises(urllib.error.URLError):
        scrape(server.url)

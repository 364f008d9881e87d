"""What Prometheus reads."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from adapters.errors import KINDS
from adapters.usage import NO_TOKENS, UsageSource
from ops.errors import LedgerUnavailable, PortTaken
from ops.health import Health
from ops.ledger import Backlog, Budget, BudgetKey, FailureTotals, Ledger, Period, Totals
from ops.metrics import (
    OTHER,
    Dependencies,
    LedgerCollector,
    Registered,
    SettledTurn,
    Vocabulary,
    WorkerMetrics,
    new_registry,
)
from ops.settings import Settings
from ops.status_server import StatusServer
from tests.support.ledger.accounts import (
    TTL,
    a_request,
    a_result,
    a_usage,
    an_end,
    begun,
    claimed,
    completed,
    tried_again,
)
from tests.support.pages import page, scrape
from workers.agents.registry import build_registry

AGENTS = build_registry(Settings())
OPUS = "claude-opus-4-5"
MANY_MODELS = [f"invented-{number}" for number in range(200)]
HOSTS = [f"host{number}" for number in range(50)]


@pytest.fixture
def registry() -> Registered:
    return new_registry()


@pytest.fixture
def worker(registry: Registered) -> WorkerMetrics:
    return WorkerMetrics(registry, Vocabulary(AGENTS))


@pytest.fixture
def server(registry: Registered) -> Iterator[StatusServer]:
    with StatusServer(registry, Health(str), "127.0.0.1", 0) as server:
        yield server


def settled(turn_id: str = "t1", agent: str = "claude-code", outcome: str = "completed") -> SettledTurn:
    return SettledTurn(turn_id, agent, "local", outcome, seconds=90.0, api_seconds=30.0, cost_usd=0.2)


def test_worker_counts_what_it_saw(worker: WorkerMetrics, server: StatusServer) -> None:
    worker.turn_claimed("t1", 3.0)
    worker.turn_claimed("t2", None)
    worker.turn_let_go()
    worker.first_event("t1", "local", 0.03)
    worker.turn_settled(settled())
    worker.turn_retried("t1", "claude-code", "overloaded")
    worker.lines_malformed("claude-code", 3)
    worker.events_dropped("claude-code", 7)
    worker.api_retried("claude-code", 529)
    worker.api_retried("claude-code", None)
    worker.tool_ended("claude-code", "Bash", failed=True, seconds=0.2)
    samples = scrape(f"{server.url}/metrics")
    agent = ("agent", "claude-code")
    turn = (agent, ("launcher", "local"), ("outcome", "completed"))
    assert samples["runturn_turns_in_flight", ()] == 1
    assert samples["runturn_turn_queue_wait_seconds_sum", (("queue", "runturn"),)] == 3
    assert samples["runturn_turns_total", turn] == 1
    assert samples["runturn_turn_duration_seconds_sum", (agent,)] == 90
    assert samples["runturn_turn_duration_seconds_bucket", (agent, ("le", "60.0"))] == 0
    assert samples["runturn_turn_duration_seconds_bucket", (agent, ("le", "120.0"))] == 1
    assert samples["runturn_turn_duration_seconds_bucket", (agent, ("le", "7200.0"))] == 1
    assert samples["runturn_turn_api_duration_seconds_sum", (agent,)] == 30
    assert samples["runturn_turn_first_event_seconds_count", (("launcher", "local"),)] == 1
    assert samples["runturn_turn_cost_usd_sum", (agent,)] == 0.2
    assert samples["runturn_turn_retries_total", (agent, ("reason", "overloaded"))] == 1
    assert samples["runturn_malformed_events_total", (agent,)] == 3
    assert samples["runturn_dropped_events_total", (agent,)] == 7
    assert samples["runturn_api_retries_total", (agent, ("status", "529"))] == 1
    assert samples["runturn_api_retries_total", (agent, ("status", "none"))] == 1
    tool = (agent, ("outcome", "error"), ("tool", "Bash"))
    assert samples["runturn_tool_calls_total", tool] == 1
    assert samples["runturn_tool_duration_seconds_sum", (("tool", "Bash"),)] == 0.2


def test_what_a_worker_is_at_is_looked_up_at_the_scrape(worker: WorkerMetrics, registry: Registered) -> None:
    up, connections = [True], [2]
    worker.watch_load(lambda: 10, lambda: 12.5)
    worker.watch_host("build1", 4, lambda: up[0])
    worker.watch_host("local", None, lambda: True)
    worker.watch_connections("build1", lambda: connections[0])
    worker.watch_health(lambda: 0.25, {"broker": lambda: False})
    value = registry.get_sample_value
    assert value("runturn_worker_slots") == 10
    assert value("runturn_turn_idle_seconds_max") == 12.5
    assert value("runturn_host_slots", {"host": "build1"}) == 4
    assert value("runturn_host_slots", {"host": "local"}) is None  # it has no limit of its own
    assert value("runturn_loop_lag_seconds") == 0.25
    assert value("runturn_dependency_up", {"dependency": "broker"}) == 0
    assert value("runturn_host_up", {"host": "build1"}) == 1
    up[0], connections[0] = False, 0
    assert value("runturn_host_up", {"host": "build1"}) == 0
    assert value("runturn_ssh_connections", {"host": "build1"}) == 0


def test_counters_that_alerts_watch_are_there_before_anything_happens(
    worker: WorkerMetrics, registry: Registered
) -> None:
    worker.watch_connections("build1", lambda: 0)
    value = registry.get_sample_value
    refused = {"host": "build1", "outcome": "host_key_changed"}
    assert value("runturn_ssh_connects_total", refused) == 0
    assert value("runturn_orphans_ended_total") == 0
    assert value("runturn_duplicate_runs_total") == 0
    for kind in KINDS:
        labels = {"agent": "claude-code", "launcher": "ssh", "outcome": kind}
        assert value("runturn_turns_total", labels) == 0


def test_what_failed_attempts_cost_is_told_by_kind_and_version(ledger: Ledger, registry: Registered) -> None:
    claim = claimed(ledger)
    begun(ledger, claim, "s1", agent_version="2.1.0")
    claim = tried_again(ledger, claim, an_end(1, a_usage(0.25), "port_exit"), 2.0)
    begun(ledger, claim, "s2")
    claim = tried_again(ledger, claim, an_end(2, a_usage(None), "turn_stalled"), 3.0)
    begun(ledger, claim, "s3", agent_version="2.1.0")
    ledger.queue.settle(claim, a_result(), 4.0, an_end(3))
    registry.register(LedgerCollector(ledger, Vocabulary(AGENTS), time.time))
    crashed = {"agent": "claude-code", "version": "2.1.0", "outcome": "port_exit"}
    stalled = {"agent": "claude-code", "version": "unknown", "outcome": "turn_stalled"}
    value = registry.get_sample_value
    assert value("runturn_failed_attempt_cost_usd_total", crashed) == 0.25
    assert value("runturn_failed_attempt_tokens_total", crashed) == 3520
    assert value("runturn_failed_attempt_cost_usd_total", stalled) is None
    assert value("runturn_failed_attempt_tokens_total", stalled) == 3520
    completed = {**crashed, "outcome": "completed"}
    assert value("runturn_failed_attempt_tokens_total", completed) is None


def test_versions_that_failed_long_ago_are_one(registry: Registered) -> None:
    failures = [FailureTotals("claude-code", f"2.0.{n}", "port_exit", 10, 1.0, float(n)) for n in range(40)]
    failures += [FailureTotals("claude-code", "what\never", "port_exit", 10, 1.0, 99.0)]

    class Books:
        reports = budgets = property(lambda self: self)

        def totals(self) -> Totals:
            return Totals((), (), tuple(failures))

        def backlog(self, now: float) -> Backlog:
            return Backlog(0, None, {}, {}, 0)

        def all_of(self, now: float) -> list[Budget]:
            return []

    registry.register(LedgerCollector(Books(), Vocabulary(AGENTS), time.time))  # type: ignore[arg-type]
    told = {
        sample.labels["version"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "runturn_failed_attempt_tokens_total"
    }
    assert told.keys() == {"2.0.39", "2.0.38", "2.0.37", "2.0.36", "2.0.35", OTHER}
    assert sum(told.values()) == 410


def test_exemplars_lead_to_the_turn(worker: WorkerMetrics, server: StatusServer) -> None:
    longest = "t" * 120
    worker.turn_settled(settled(longest))
    text = page(f"{server.url}/metrics", "application/openmetrics-text; version=1.0.0")
    counted = r'runturn_turns_total\{agent="claude-code",launcher="local",outcome="completed"\} 1\.0'
    exemplar = rf'# \{{turn_id="{longest}"\}} '
    assert re.search(rf"^{counted} {exemplar}1\.0", text, re.MULTILINE)
    bucket = r'runturn_turn_duration_seconds_bucket\{agent="claude-code",le="120\.0"\} 1\.0'
    assert re.search(rf"^{bucket} {exemplar}90\.0", text, re.MULTILINE)
    assert longest not in page(f"{server.url}/metrics")  # only OpenMetrics has them


def test_refused_turn_is_counted_whatever_its_task_is_called(worker: WorkerMetrics, server: StatusServer) -> None:
    worker.turn_refused("t" * 200, "claude-code")
    counted = r'runturn_turns_total\{agent="claude-code",launcher="none",outcome="invalid_request"\} 1\.0'
    assert re.search(rf"^{counted}$", page(f"{server.url}/metrics"), re.MULTILINE)


def test_words_that_nobody_knows_are_one() -> None:
    words = Vocabulary(AGENTS)
    assert (words.agent("claude-code"), words.agent("mine")) == ("claude-code", OTHER)
    assert words.model("claude-code", f"{OPUS}-20251101") == f"{OPUS}-20251101"
    assert words.model("claude-code", "gpt-9") == words.model("mine", OPUS) == OTHER
    assert words.tool("scripted", "Bash") == "Bash"
    assert words.tool("claude-code", "mcp__mine__drop") == words.tool("mine", "Bash") == OTHER
    assert (words.status(None), words.status(529), words.status(799)) == ("none", "529", OTHER)


def test_host_has_one_version_of_an_agent_at_a_time(worker: WorkerMetrics, registry: Registered) -> None:
    def seen() -> dict[tuple[str, str], float]:
        found = next(metric for metric in registry.collect() if metric.name == "runturn_agent_info")
        return {(sample.labels["version"], sample.labels["standing"]): sample.value for sample in found.samples}

    for version in ("2.1.50", "2.1.330", "2.1.330"):
        worker.agent_seen("claude-code", "build1", version)
    assert seen() == {("2.1.330", "proved"): 1}
    worker.agent_seen("claude-code", "build1", "whatever it says")
    assert seen() == {(OTHER, "unproved"): 1}


def test_tools_and_models_of_all_agents_are_bounded() -> None:
    for adapter in AGENTS:
        assert 0 < len(adapter.tools) < 60
        assert adapter.price("invented", NO_TOKENS) is None


def test_ten_thousand_turns_over_fifty_hosts_make_few_series(
    worker: WorkerMetrics, server: StatusServer, ledger: Ledger, registry: Registered
) -> None:
    """Every label takes every value that it can take, and 200 models and as many tools are invented."""
    registry.register(LedgerCollector(ledger, Vocabulary(AGENTS), time.time))
    for number, model in enumerate(MANY_MODELS):
        completed(ledger, f"t{number}", a_usage(0.1, model=model))
    worker.watch_health(lambda: 0.0, {"broker": lambda: True, "ledger": lambda: True})
    for host in HOSTS:
        worker.watch_host(host, 4, lambda: True)
        worker.watch_connections(host, lambda: 1)
    rng, outcomes, tools = random.Random(5), ["completed", *KINDS], sorted(AGENTS.get("claude-code").tools)
    for number in range(10_000):
        turn_id, agent = f"turn-{number}", rng.choice([*AGENTS.names, f"agent-{number}"])
        worker.turn_claimed(turn_id, rng.random() * 9_000)
        worker.first_event(turn_id, rng.choice(["local", "ssh"]), rng.random() * 100)
        worker.tool_ended(
            agent,
            rng.choice([*tools, f"mcp__{rng.choice(MANY_MODELS)}"]),
            failed=rng.random() < 0.5,
            seconds=rng.random() * 900,
        )
        worker.api_retried(agent, rng.choice([None, *range(400, 600)]))
        worker.turn_retried(turn_id, agent, rng.choice(list(KINDS)))
        worker.turn_settled(settled(turn_id, agent, rng.choice(outcomes)))
        worker.host_connected(rng.choice(HOSTS), rng.random())
        worker.agent_seen(agent, rng.choice(HOSTS), rng.choice([f"2.1.{number}", "x" * 900]))
        worker.reattached(rng.choice(["link", "worker"]))
        worker.agent_ended(agent, rng.choice(HOSTS), 1000, rng.randrange(2**37))
        worker.host_memory_seen(rng.choice(HOSTS), rng.randrange(100))
    series = len(scrape(f"{server.url}/metrics"))
    print(f"{series} series")
    assert series < 3_000
    text = page(f"{server.url}/metrics")
    assert "invented" not in text and "turn-" not in text
    assert 'runturn_tokens_total{agent="claude-code",model="other",type="input"} 20000.0' in text


def test_two_workers_in_one_process_share_nothing() -> None:
    first, second = new_registry(), new_registry()
    WorkerMetrics(first).turn_claimed("t1", None)
    WorkerMetrics(second)
    assert first.get_sample_value("runturn_turns_in_flight") == 1
    assert second.get_sample_value("runturn_turns_in_flight") == 0


def test_tokens_and_money_come_from_the_books(ledger: Ledger, registry: Registered, server: StatusServer) -> None:
    completed(ledger, "t1", a_usage(0.1, model=OPUS))
    completed(ledger, "t2", a_usage(0.2, model=OPUS))
    completed(ledger, "t3", a_usage(None, UsageSource.STREAM, model=OPUS))
    completed(ledger, "t4", a_usage(None, model="unpriced"))
    completed(ledger, "t5", a_usage(None, model="unpriced-too"))
    registry.register(LedgerCollector(ledger, Vocabulary(AGENTS), time.time))
    samples = scrape(f"{server.url}/metrics")
    opus, other = ((("agent", "claude-code"), ("model", model)) for model in (OPUS, OTHER))

    def tokens(labels: tuple[tuple[str, str], ...]) -> dict[str, float]:
        found = {key: value for key, value in samples.items() if key[0] == "runturn_tokens_total"}
        return {key[1][2][1]: value for key, value in found.items() if key[1][:2] == labels}

    assert tokens(opus) == {"input": 200, "output": 40, "cache_read": 6000, "cache_creation": 800}
    assert tokens(other) == tokens(opus)  # two turns of two models that nobody knows
    assert samples["runturn_cost_usd_total", opus] == pytest.approx(0.3, abs=1e-12)
    assert ("runturn_cost_usd_total", other) not in samples
    assert samples["runturn_unpriced_tokens_total", other] == 7040
    outcome = (("agent", "claude-code"), ("outcome", "completed"))
    assert samples["runturn_settled_turns_total", outcome] == 5


def test_queue_is_called_as_it_is(ledger: Ledger, registry: Registered) -> None:
    words = Vocabulary(AGENTS, "turns")
    registry.register(LedgerCollector(ledger, words, time.time))
    WorkerMetrics(registry, words).turn_claimed("t1", 3.0)
    value = registry.get_sample_value
    for name in ("queued_turns", "oldest_queued_turn_seconds", "turn_queue_wait_seconds_count"):
        assert value(f"runturn_{name}", {"queue": "turns"}) is not None
        assert value(f"runturn_{name}", {"queue": "runturn"}) is None


def test_queue_and_hosts_come_from_the_books(ledger: Ledger, registry: Registered) -> None:
    registry.register(LedgerCollector(ledger, Vocabulary(AGENTS), lambda: 160.0))
    ledger.queue.submit_many([a_request("old")], 100.0)
    ledger.queue.submit_many([a_request("new")], 150.0)
    ledger.queue.admit(a_request("eta"), "task", 100.0, due_at=500.0)
    parked, running = (claimed(ledger, turn_id, now=100.0) for turn_id in ("parked", "running"))
    ledger.queue.wait(parked, 200.0, "rate_limited", 120.0)
    ledger.queue.begin_attempt(running, host="build1", spool_id="s", session_id=None, resume=False, now=101.0)
    value = registry.get_sample_value
    assert value("runturn_queued_turns", {"queue": "runturn"}) == 2
    assert value("runturn_oldest_queued_turn_seconds", {"queue": "runturn"}) == 60
    assert value("runturn_parked_turns", {"reason": "rate_limited"}) == 1
    assert value("runturn_parked_turns", {"reason": "due_later"}) == 1
    assert value("runturn_host_slots_in_use", {"host": "build1"}) == 1
    assert value("runturn_dead_letters") == 0


def test_budgets_come_from_the_books(ledger: Ledger, registry: Registered) -> None:
    day = 20_000 * 86_400.0
    registry.register(LedgerCollector(ledger, Vocabulary(AGENTS), lambda: day + 3_600))
    ledger.budgets.put(BudgetKey("team", "web", Period.DAY), 50.0, 1.0, day + 60)
    ledger.budgets.put(BudgetKey("team", "web", Period.TOTAL), 500.0, 1.0, day + 60)
    value = registry.get_sample_value
    per_day, total = {"budget": "team=web/day"}, {"budget": "team=web/total"}
    assert value("runturn_budget_limit_usd", per_day) == 50
    assert value("runturn_budget_spent_usd", per_day) == 0
    assert value("runturn_budget_period_start_timestamp_seconds", per_day) == day
    assert value("runturn_budget_period_end_timestamp_seconds", per_day) == day + 86_400
    assert value("runturn_budget_limit_usd", total) == 500
    assert value("runturn_budget_period_end_timestamp_seconds", total) is None


def test_page_survives_a_ledger_that_is_away(registry: Registered, server: StatusServer) -> None:
    class Away:
        reports = budgets = property(lambda self: self)

        def totals(self) -> Totals:
            raise LedgerUnavailable("gone")

    registry.register(LedgerCollector(Away(), Vocabulary(), time.time))  # type: ignore[arg-type]
    Dependencies(registry).watch({"ledger": lambda: False})
    samples = scrape(f"{server.url}/metrics")
    assert samples["runturn_dependency_up", (("dependency", "ledger"),)] == 0
    assert not any("tokens" in name for name, _ in samples)


def test_page_does_not_wait_for_a_ledger_that_is_known_not_to_answer(ledger: Ledger) -> None:
    def never() -> float:
        raise AssertionError("it was asked")

    assert list(LedgerCollector(ledger, Vocabulary(AGENTS), never, lambda: False).collect()) == []


def test_promtool_finds_nothing_to_lint(
    worker: WorkerMetrics, server: StatusServer, registry: Registered, ledger: Ledger, promtool: str
) -> None:
    registry.register(LedgerCollector(ledger, Vocabulary(AGENTS), time.time))
    completed(ledger, "t1", a_usage(0.1, model=OPUS))
    worker.watch_host("h", 4, lambda: True)
    worker.watch_connections("h", lambda: 1)
    worker.watch_health(lambda: 0.0, {"broker": lambda: True})
    worker.turn_settled(settled())
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=page(f"{server.url}/metrics"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_port_that_is_taken_fails_loudly(server: StatusServer) -> None:
    with pytest.raises(
        PortTaken, match=rf"127\.0\.0\.1:{server.port}: Address already in use; set RUNTURN_METRICS_PORT"
    ):
        StatusServer(new_registry(), Health(str), "127.0.0.1", server.port)


def test_host_that_is_none_fails_loudly() -> None:
    with pytest.raises(PortTaken, match=r"no\.such\.host\.invalid"):
        StatusServer(new_registry(), Health(str), "no.such.host.invalid", 0)


def test_first_claim_knows_since_when_the_turn_could_have_been_taken(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "task", 100.0, due_at=150.0)
    (first,), (again,) = (ledger.queue.take("w", lambda _: True, now, TTL, 1) for now in (160.0, 160.0 + TTL))
    assert (first.ready_at, again.ready_at) == (150.0, None)

"""Every alert fires on a real Prometheus when its fault is there, and is gone when it is over.

What is shown: Prometheus itself (Debian's) loads ops/prometheus/rules.yml, scrapes two workers and an exporter
over HTTP, evaluates all rules without an error, has no alert in health, has every alert of the file firing
while its fault lasts, and none some time after the last one. The pages are those of the real classes,
`WorkerMetrics` and `LedgerCollector`, so that names and labels are the real ones; what they tell of is made up
here: no turn runs.

What is not: the rules' own times. They are divided by `PACE`, so that an hour passes in 10 s (see `hurried`);
the hours as they stand in the file are those of the unit tests, rules.test.yml. The day that spending is
compared with is written into Prometheus's storage before it starts. Nothing is sent to an Alertmanager.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from adapters.usage import Tokens
from ops.ledger import Backlog, Budget, BudgetKey, FailureTotals, ModelTotals, OutcomeTotals, Period, Totals
from ops.metrics import LedgerCollector, SettledTurn, Vocabulary, WorkerMetrics, new_registry
from ops.settings import Settings
from tests.support.places import ROOT
from tests.support.prometheus_server import Prometheus
from tests.support.waiting import until
from workers.agents.registry import build_registry

RULES = ROOT / "ops" / "prometheus" / "rules.yml"
RUNBOOK = ROOT / "docs" / "operating.md"
PACE = 360  # as many times as fast

pytestmark = pytest.mark.timeout(300)  # twenty seconds, if the machine has nothing else to do

_UNITS_S = {"m": 60, "h": 3600, "d": 86_400}
_HOUR_S = 3600 / PACE
_SPENT_USD = 26.0  # in the day before, one in each hour


def hurried(rules: str) -> str:
    """Rules whose `for`, windows, offsets and ages of processes are `PACE` times shorter; thresholds stay."""

    def milliseconds(seconds: float) -> str:
        return f"{round(seconds * 1000 / PACE)}ms"

    def duration(match: re.Match[str]) -> str:
        return match[1] + milliseconds(int(match[2]) * _UNITS_S[match[3]])

    rules = re.sub(r"(\[|offset |for: )(\d+)([mhd])\b", duration, rules)
    return re.sub(
        r"(process_start_time_seconds < )(\d+)", lambda match: f"{match[1]}{int(match[2]) / PACE}", rules
    )


class Page:
    """One `/metrics` over HTTP. While it is `away`, scrapes fail."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.away = False
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(503 if page.away else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(generate_latest(registry))

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.target = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Page:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class WorkerState:
    """What a worker's gauges are asked for."""

    slots: int = 10
    idle_s: float = 1.0
    lag_s: float = 0.01
    ahead_s: float = 0.01
    answers: bool = True  # broker and ledger do
    host_up: bool = True


class FakeWorker:
    """A worker that is at two turns, in health."""

    def __init__(self) -> None:
        self.state = WorkerState()
        self.registry = new_registry()
        self.metrics = metrics = WorkerMetrics(self.registry, _words())
        metrics.watch_load(lambda: self.state.slots, lambda: self.state.idle_s)
        answers = {"broker": lambda: self.state.answers, "ledger": lambda: self.state.answers}
        metrics.watch_health(lambda: self.state.lag_s, answers)
        metrics.watch_clock(lambda: self.state.ahead_s)
        metrics.watch_host("build1", 4, lambda: self.state.host_up)
        metrics.watch_connections("build1", lambda: 1)
        for n in range(2):
            metrics.turn_claimed(f"turn{n}", 0.1)

    def fail(self) -> None:
        """Whatever can go wrong, until `recover`."""
        self.state = WorkerState(idle_s=2000.0, lag_s=3.0, ahead_s=-3600.0, answers=False, host_up=False)
        for n in range(8):
            self.metrics.turn_claimed(f"more{n}", 1000.0)

    def fail_again(self) -> None:
        """Events of faults, which counters count."""
        metrics = self.metrics
        for _ in range(20):
            metrics.turn_claimed("late", 1000.0)
            metrics.turn_let_go()
            metrics.turn_retried("late", "claude-code", "turn_stalled")
            metrics.api_retried("claude-code", 529)
        metrics.lines_malformed("claude-code", 20)
        metrics.events_dropped("claude-code", 2000)
        metrics.ran_twice()
        metrics.orphan_ended()
        metrics.host_refused("build1", "host_auth_failed")
        metrics.host_refused("build1", "host_key_changed")
        metrics.host_memory_seen("build1", 4)
        metrics.budget_denied(BudgetKey("team", "web", Period.DAY))
        for outcome in ("turn_stalled", "internal_error"):
            metrics.turn_settled(SettledTurn("late", "claude-code", "ssh", outcome, 1.0, None, None))

    def recover(self) -> None:
        self.state = WorkerState()
        for _ in range(8):
            self.metrics.turn_let_go()


@dataclass
class FakeBooks:
    """A ledger in health."""

    failed: int = 10
    cost_usd: float = _SPENT_USD
    in_vain_usd: float = 0.1
    unpriced: int = 0
    budget_usd: float = 1.0
    oldest_s: float | None = 1.0
    in_use: int = 1
    parked: dict[str, int] = field(default_factory=dict)
    dead_letters: int = 0

    @property
    def reports(self) -> Self:
        return self

    @property
    def budgets(self) -> Self:
        return self

    def totals(self) -> Totals:
        used = [ModelTotals("claude-code", "claude-sonnet-4-5", True, Tokens(1, 1, 1, 1), self.cost_usd, 0)]
        if self.unpriced:
            used.append(ModelTotals("claude-code", "brand-new", True, Tokens(), None, self.unpriced))
        outcomes = {"completed": 1000, "turn_failed": self.failed}
        in_vain = FailureTotals("claude-code", "2.1.0", "port_exit", 1000, self.in_vain_usd, 1.0)
        counted = tuple(OutcomeTotals("claude-code", *item) for item in outcomes.items())
        return Totals(tuple(used), counted, (in_vain,))

    def backlog(self, now: float) -> Backlog:
        since = None if self.oldest_s is None else now - self.oldest_s
        return Backlog(1 if since else 0, since, self.parked, {"build1": self.in_use}, self.dead_letters)

    def all_of(self, now: float) -> list[Budget]:
        # See `_five_hours_ago`: between a half and 17 twentieths of the period have passed.
        return [Budget("team", "web", Period.DAY, 100.0, 1.0, self.budget_usd, 0.0, now + 10 * 3600)]

    def fail(self) -> None:
        self.budget_usd, self.oldest_s, self.in_use = 95.0, 5000.0, 4
        self.parked, self.dead_letters = {"rate_limited": 3}, 2

    def fail_again(self) -> None:
        self.failed += 5
        self.cost_usd += 60.0
        self.in_vain_usd += 6.0
        self.unpriced += 1000

    def recover(self) -> None:
        self.budget_usd, self.oldest_s, self.in_use, self.parked, self.dead_letters = 1.0, 1.0, 1, {}, 0


def _words() -> Vocabulary:
    return Vocabulary(build_registry(Settings()))


def _five_hours_ago() -> float:
    """What the exporter's clock shows: the day that it is in then began between 5 and 29 hours before now."""
    return time.time() - 5 * 3600


def _past() -> str:
    """A dollar an hour, for a day and two hours more, up to now."""
    name, now, step_s = "fleet:runturn_cost_usd:sum", time.time(), 0.5
    ago = [n * step_s for n in range(round(26 * _HOUR_S / step_s), 0, -1)]
    lines = [f"{name} {_SPENT_USD - back_s / _HOUR_S} {now - back_s:.3f}" for back_s in ago]
    return "\n".join([f"# TYPE {name} gauge", *lines, "# EOF", ""])


class Alarms:
    """What Prometheus says."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self.texts: dict[str, dict[str, str]] = {}  # annotations by alert, as they were last

    def firing(self) -> set[str]:
        alerts = self._prometheus.get("alerts")["alerts"]
        now = {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"}
        self.texts |= {name: alert["annotations"] for name, alert in now.items()}
        return set(now)

    def quiet(self) -> bool:
        """Whether there is none, not even one that is about to fire."""
        return not self._prometheus.get("alerts")["alerts"]

    def wait_for(self, expected: set[str], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until all of these fire together."""
        missing = expected

        def fire() -> bool:
            nonlocal missing
            meanwhile()
            missing = expected - self.firing()
            return not missing

        try:
            until(fire, "alerts")
        except AssertionError as error:
            raise AssertionError(f"{error}: {sorted(missing)}") from None


@pytest.fixture(scope="module")
def seen() -> Iterator[tuple[Alarms, Prometheus]]:
    """Prometheus after a fleet that was in health, failed in every way, and recovered."""
    with ExitStack() as stack:
        worker, other, books = FakeWorker(), FakeWorker(), FakeBooks()
        ledger = new_registry()
        ledger.register(LedgerCollector(cast("Any", books), _words(), _five_hours_ago))
        pages = [stack.enter_context(Page(registry)) for registry in (worker.registry, other.registry, ledger)]
        prometheus = Prometheus(_configuration(*(page.target for page in pages)))
        (prometheus.folder / "rules.yml").write_text(hurried(RULES.read_text()))
        prometheus.remember(_past())
        alarms = Alarms(stack.enter_context(prometheus))
        _live_through(alarms, prometheus, worker, books, pages)
        yield alarms, prometheus


def _live_through(
    alarms: Alarms, prometheus: Prometheus, worker: FakeWorker, books: FakeBooks, pages: list[Page]
) -> None:
    def fail_again() -> None:
        worker.fail_again()
        books.fail_again()

    seen_for_long = f"sum(up offset {round(900_000 / PACE)}ms) == {len(pages)}"
    until(lambda: prometheus.query(seen_for_long) and alarms.quiet(), "health")

    unreachable = {"RunturnNoWorker", "RunturnExporterDown"}
    stuck = {"RunturnQueueStuck"}
    pages[1].away = True
    worker.fail()
    books.fail()
    alarms.wait_for(_alerts() - unreachable - stuck, meanwhile=fail_again)

    pages[1].away = False
    worker.recover()
    books.recover()
    books.oldest_s = 200.0  # with room everywhere
    alarms.wait_for(stuck)

    books.oldest_s = 1.0
    for page in pages:
        page.away = True
    alarms.wait_for(unreachable)

    for page in pages:
        page.away = False
    until(alarms.quiet, "the end of all alerts")


def _alerts() -> set[str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}


def _configuration(worker: str, other: str, exporter: str) -> dict[str, Any]:
    jobs = {"runturn-worker": [worker, other], "runturn-exporter": [exporter]}
    return {
        # Every 72 s of the hurried time.
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
        ],
    }


def test_every_alert_fires_and_clears(seen: tuple[Alarms, Prometheus]) -> None:
    alarms, _ = seen
    assert alarms.texts.keys() == _alerts()
    until(alarms.quiet, "quiet")


def test_no_rule_fails(seen: tuple[Alarms, Prometheus]) -> None:
    groups = seen[1].get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    assert len(rules) > len(_alerts())


def test_what_alerts_say_has_no_holes(seen: tuple[Alarms, Prometheus]) -> None:
    for name, texts in seen[0].texts.items():
        for text in texts.values():
            assert not re.search(r"<no value>|<error|%!|  |\(\)| \.|NaN", text), (name, text)


def test_queries_of_the_runbook_run(seen: tuple[Alarms, Prometheus]) -> None:
    for block in re.findall(r"^```promql\n(.*?)^```$", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL):
        for query in block.splitlines():
            seen[1].query(query)


def test_only_times_are_hurried() -> None:
    rules = "for: 5m\nx[1h] > 900 and y offset 1d\ntime() - process_start_time_seconds < 900"
    hasty = "for: 833ms\nx[10000ms] > 900 and y offset 240000ms\ntime() - process_start_time_seconds < 2.5"
    assert hurried(rules) == hasty

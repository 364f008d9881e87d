"""Metrics of one worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from adapters.errors import KINDS, InvalidRequest, Retry
from ops.ledger import BudgetKey
from ops.metrics.labels import Vocabulary
from ops.metrics.registry import Dependencies

# Seconds. A turn takes from a second to hours, a tool at most as long as Claude Code waits for it.
TURN_BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
_WAIT = (0.1, 0.5, *TURN_BUCKETS_S)
_FIRST_EVENT = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_TOOL = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 600)
_CONNECT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_USD = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)

_FREE_PERCENT = 5  # of a host's memory; with less, the kernel is about to kill something
_MEMORY = tuple(2**power * 2**20 for power in range(5, 17))  # bytes: 32 MiB to 64 GiB

_LONGEST_ID = 120  # of a valid request; OpenMetrics allows 128, name included
_LAUNCHERS = ("local", "ssh")
_OUTCOMES = ("completed", *KINDS)
_CONNECTS = ("ok", "host_unreachable", "host_auth_failed", "host_key_changed")


@dataclass(frozen=True, slots=True)
class SettledTurn:
    """Values recorded when a turn is settled."""

    turn_id: str  # an exemplar, never a label
    agent: str
    launcher: str  # local, ssh; none: never started
    outcome: str  # completed, or an error kind
    seconds: float  # since its claim by this worker
    api_seconds: float | None
    cost_usd: float | None


class WorkerMetrics:
    """Metrics of a worker. Methods record events; `watch_…` registers what each scrape reads."""

    def __init__(self, registry: CollectorRegistry, vocabulary: Vocabulary | None = None) -> None:
        self._words = vocabulary or Vocabulary()
        self._versions: dict[tuple[str, str], tuple[str, str]] = {}  # by agent and host, with its standing

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"runturn_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"runturn_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"runturn_{name}", text, labels, buckets=buckets, registry=registry)

        self._turns = counter("turns", "Turns settled by this worker", "agent", "launcher", "outcome")
        self._duration = histogram(
            "turn_duration_seconds", "Time from the claim of a turn to its settlement", TURN_BUCKETS_S, "agent"
        )
        self._api = histogram(
            "turn_api_duration_seconds",
            "Time a turn waited for its model, as reported by the agent",
            TURN_BUCKETS_S,
            "agent",
        )
        self._first_event = histogram(
            "turn_first_event_seconds",
            "Time from recording an attempt to its first event",
            _FIRST_EVENT,
            "launcher",
        )
        self._cpu = counter(
            "agent_cpu_seconds",
            "CPU time of agents and their tools, where the host reports it",
            "host",
        )
        self._memory = histogram(
            "attempt_peak_memory_bytes",
            "Peak memory of an agent and its tools, as sampled",
            _MEMORY,
            "agent",
        )
        self._short_of_memory = counter(
            "host_memory_short",
            f"Attempts that saw less than {_FREE_PERCENT} % of their host's memory available",
            "host",
        )
        self._cost = histogram("turn_cost_usd", "Cost of a turn over all attempts, where known", _USD, "agent")
        self._queue_wait = histogram(
            "turn_queue_wait_seconds", "Time from when a turn could start to its first claim", _WAIT, "queue"
        )
        self._in_flight = gauge("turns_in_flight", "Turns running on this worker")
        self._slots = gauge(
            "worker_slots", "Maximum number of turns that this worker may run at a time; 0 once it is stopping"
        )
        self._idle = gauge("turn_idle_seconds_max", "Longest current silence of an agent")
        self._retries = counter("turn_retries", "Attempts that are followed by another", "agent", "reason")
        self._api_retries = counter(
            "api_retries", "Retries of an agent's requests to its model", "agent", "status"
        )
        self._tools = counter("tool_calls", "Finished tool calls", "agent", "tool", "outcome")
        self._tool_duration = histogram("tool_duration_seconds", "Duration of tool calls", _TOOL, "tool")
        self._connections = gauge("ssh_connections", "SSH connections of this worker", "host")
        self._connects = counter("ssh_connects", "Attempts to connect and log in", "host", "outcome")
        self._connect_duration = histogram("ssh_connect_duration_seconds", "Time to connect and log in", _CONNECT)
        self._host_slots = gauge("host_slots", "Maximum number of agents that a host may run at a time", "host")
        self._host_up = gauge(
            "host_up",
            "0 while a failing host is avoided, until a connection succeeds; else 1",
            "host",
        )
        self._reattachments = counter(
            "reattachments",
            "Reattachments to running turns: after a lost link, or by another worker",
            "cause",
        )
        self._orphans = counter("orphans_ended", "Agents terminated because no worker followed them")
        self._copies = counter("duplicate_deliveries", "Messages for turns already recorded")
        self._duplicates = counter("duplicate_runs", "Agents found running for a replaced attempt")
        self._denials = counter("budget_denials", "Turns refused by a budget", "budget")
        self._agents = gauge(
            "agent_info",
            "Version of an agent on a host, as this worker last saw it; always 1",
            "agent",
            "host",
            "version",
            "standing",
        )
        self._malformed = counter("malformed_events", "Unreadable output lines of agents", "agent")
        self._dropped = counter(
            "dropped_events", "Events that were not recorded, because an agent printed too much", "agent"
        )
        self._lag = gauge("loop_lag_seconds", "Longest delay of the event loop in the last 15 s")
        self._clock = gauge("clock_ahead_seconds", "How far this worker's clock is ahead of the ledger's")
        self._dependencies = Dependencies(registry)
        self._begin_at_zero()

    def watch_load(self, slots: Callable[[], float], idle_s: Callable[[], float]) -> None:
        """Report the number of slots and the longest silence."""
        self._slots.set_function(slots)
        self._idle.set_function(idle_s)

    def watch_health(self, lag_s: Callable[[], float], dependencies: Mapping[str, Callable[[], bool]]) -> None:
        """Report the event loop's lag, and whether dependencies answer."""
        self._lag.set_function(lag_s)
        self._dependencies.watch(dependencies)

    def watch_clock(self, ahead_s: Callable[[], float]) -> None:
        """Report by how much this machine's clock differs from the ledger's."""
        self._clock.set_function(ahead_s)

    def watch_host(self, host: str, slots: int | None, up: Callable[[], bool]) -> None:
        """Report a host and its slots; None: no limit. Create its counters at 0, as for connections."""
        self._host_up.labels(host).set_function(up)
        self._short_of_memory.labels(host)
        self._cpu.labels(host)
        if slots is not None:
            self._host_slots.labels(host).set(slots)

    def watch_connections(self, host: str, connections: Callable[[], int]) -> None:
        """Report an SSH host. Create its counters at 0, so that Prometheus sees their first step."""
        self._connections.labels(host).set_function(connections)
        for outcome in _CONNECTS:
            self._connects.labels(host, outcome)

    def host_connected(self, host: str, seconds: float) -> None:
        """Record a successful connect."""
        self._connects.labels(host, "ok").inc()
        self._connect_duration.observe(seconds)

    def host_refused(self, host: str, kind: str) -> None:
        """Record a failed connect or refused login. `kind`: an error kind."""
        self._connects.labels(host, kind).inc()

    def agent_seen(self, agent: str, host: str, version: str) -> None:
        """Record the current version of an agent on a host, as the host or the agent reports it."""
        known = self._words.agent(agent), host
        told = self._words.version(version), self._words.standing(agent, version)
        before = self._versions.get(known)
        if before != told:
            if before is not None:
                self._agents.remove(*known, *before)
            self._versions[known] = told
            self._agents.labels(*known, *told).set(1)

    def turn_claimed(self, turn_id: str, waited_s: float | None) -> None:
        """Record the claim of a turn and how long it had been ready; None: it was claimed before."""
        self._in_flight.inc()
        if waited_s is not None:
            self._queue_wait.labels(self._words.queue).observe(waited_s, _exemplar(turn_id))

    def turn_let_go(self) -> None:
        """Record that this worker released a turn, for whatever reason."""
        self._in_flight.dec()

    def first_event(self, turn_id: str, launcher: str, seconds: float) -> None:
        """Record the delay of an agent's first event."""
        self._first_event.labels(launcher).observe(seconds, _exemplar(turn_id))

    def turn_settled(self, turn: SettledTurn) -> None:
        """Record a settled turn."""
        agent, exemplar = self._words.agent(turn.agent), _exemplar(turn.turn_id)
        self._turns.labels(agent, turn.launcher, turn.outcome).inc(1, exemplar)
        self._duration.labels(agent).observe(turn.seconds, exemplar)
        if turn.api_seconds is not None:
            self._api.labels(agent).observe(turn.api_seconds, exemplar)
        if turn.cost_usd is not None:
            self._cost.labels(agent).observe(turn.cost_usd, exemplar)

    def agent_ended(self, agent: str, host: str, cpu_ms: int | None, peak_memory_bytes: int | None) -> None:
        """Record what an attempt took of its host, where known."""
        if cpu_ms is not None:
            self._cpu.labels(host).inc(cpu_ms / 1000)
        if peak_memory_bytes is not None:
            self._memory.labels(self._words.agent(agent)).observe(peak_memory_bytes)

    def host_memory_seen(self, host: str, least_free_percent: int | None) -> None:
        """Record the smallest share of a host's memory that an attempt saw available; None: not sampled."""
        short = self._short_of_memory.labels(host)
        if least_free_percent is not None and least_free_percent < _FREE_PERCENT:
            short.inc()

    def turn_refused(self, turn_id: str, agent: str) -> None:
        """Record an invalid request, whose turn is settled without a claim."""
        self._turns.labels(self._words.agent(agent), "none", InvalidRequest.kind).inc(1, _exemplar(turn_id))

    def turn_retried(self, turn_id: str, agent: str, reason: str) -> None:
        """Record a failed attempt that another follows. `reason`: an error kind."""
        self._retries.labels(self._words.agent(agent), reason).inc(1, _exemplar(turn_id))

    def api_retried(self, agent: str, status: int | None) -> None:
        """Record a request to its model that an agent retries. `status`: of the answer; None: no answer."""
        self._api_retries.labels(self._words.agent(agent), self._words.status(status)).inc()

    def tool_ended(self, agent: str, tool: str, *, failed: bool, seconds: float | None) -> None:
        """Record a finished tool call, with its duration if known."""
        name = self._words.tool(agent, tool)
        self._tools.labels(self._words.agent(agent), name, "error" if failed else "ok").inc()
        if seconds is not None:
            self._tool_duration.labels(name).observe(seconds)

    def lines_malformed(self, agent: str, lines: int) -> None:
        """Record unreadable output lines of an agent."""
        self._malformed.labels(self._words.agent(agent)).inc(lines)

    def events_dropped(self, agent: str, events: int) -> None:
        """Record events that were dropped because an agent printed too much."""
        self._dropped.labels(self._words.agent(agent)).inc(events)

    def reattached(self, cause: str) -> None:
        """Record a reattachment to a running turn. `cause`: link, worker."""
        self._reattachments.labels(cause).inc()

    def orphan_ended(self) -> None:
        """Record an agent that was terminated because no worker followed it."""
        self._orphans.inc()

    def delivered_again(self) -> None:
        """Record a message for a turn already recorded."""
        self._copies.inc()

    def ran_twice(self) -> None:
        """Record an agent found running for a replaced attempt. This must never happen."""
        self._duplicates.inc()

    def budget_denied(self, budget: BudgetKey) -> None:
        """Record a turn refused by a budget."""
        self._denials.labels(str(budget)).inc()

    def _begin_at_zero(self) -> None:
        """Create counters at 0: `rate` misses the first step of a new one."""
        self._queue_wait.labels(self._words.queue)
        for launcher in _LAUNCHERS:
            self._first_event.labels(launcher)
        for agent in self._words.agents:
            for metric in (self._malformed, self._dropped, self._duration, self._api, self._cost):
                metric.labels(agent)
            for outcome in _OUTCOMES:
                for launcher in (*_LAUNCHERS, "none"):
                    self._turns.labels(agent, launcher, outcome)
            for kind, error in KINDS.items():
                if error.default_retry is Retry.BACKOFF:
                    self._retries.labels(agent, kind)
        for cause in ("link", "worker"):
            self._reattachments.labels(cause)


def _exemplar(turn_id: str) -> dict[str, str] | None:
    """Return the exemplar; None if the id is too long for OpenMetrics, as a refused turn's may be."""
    return {"turn_id": turn_id} if len(turn_id) <= _LONGEST_ID else None

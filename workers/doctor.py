"""Checks of everything a turn needs, each with what to do about it. Nothing here raises or lasts for long."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol

from celery import Celery

from adapters.contract import Adapter, Exit
from adapters.registry import Registry
from ops.ledger import Ledger
from ops.redaction import scrubbed
from ops.settings import Settings
from ops.state_dir import StateDir
from remote.local import LocalHost
from remote.upkeep import check_tools, free_bytes, list_spools, probe
from workers.embedded import EmbeddedBroker

_MIN_FREE_BYTES = 256 * 1024 * 1024
_PING_S = 5.0
_PROBE_S = 8.0
_CHECK_S = 10.0  # for any one check


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""

    def document(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


class Installation(Protocol):
    """What is examined; looking at a part of it may raise anything."""

    @property
    def settings(self) -> Settings:
        """The configuration."""

    @property
    def registry(self) -> Registry:
        """The agents."""

    @property
    def state(self) -> StateDir:
        """The state directory."""

    @property
    def ledger(self) -> Ledger:
        """The books."""

    @property
    def embedded(self) -> EmbeddedBroker | None:
        """Our own broker, if it is the one."""

    @property
    def app(self) -> Celery:
        """The application, on a broker that answers."""


def examine(installation: Installation) -> Iterator[Check]:
    """All checks, in the order in which to mend things. What needs something that is broken is left out."""
    configuration = bounded("configuration", partial(_configuration, installation))
    yield configuration
    if not configuration.ok:
        return
    yield (tools := bounded("tools", partial(_tools, installation)))
    if tools.ok:
        for adapter in installation.registry:
            yield bounded(f"agent {adapter.name}", partial(_agent, installation, adapter))
    yield (state := bounded("state directory", partial(_state_dir, installation)))
    if not state.ok:
        return
    yield bounded("spools", partial(_spools, installation))
    yield bounded("ledger", partial(_ledger, installation))
    yield (broker := bounded("broker", partial(_broker, installation)))
    if broker.ok:
        yield bounded("worker", partial(_worker, installation))


def bounded(name: str, check: Callable[[], Check], timeout_s: float = _CHECK_S) -> Check:
    """Do one check; what goes wrong with it, or takes too long, is its outcome."""
    outcome: queue.SimpleQueue[Check] = queue.SimpleQueue()

    def examine_it() -> None:
        try:
            outcome.put(check())
        except Exception as error:  # a doctor that dies of an illness helps nobody
            outcome.put(Check(name, False, str(error) or type(error).__name__))

    threading.Thread(target=examine_it, name=f"doctor-{name}", daemon=True).start()
    try:
        return outcome.get(timeout=timeout_s)
    except queue.Empty:
        return Check(name, False, f"no answer within {timeout_s:g} s")


def _configuration(installation: Installation) -> Check:
    settings = installation.settings
    if settings.agent.kind in installation.registry.names:
        return Check("configuration", True, f"valid; the agent is {settings.agent.kind}")
    known = ", ".join(installation.registry.names)
    detail = f"agent.kind: there is no agent {settings.agent.kind!r}"
    return Check("configuration", False, detail, f"set RUNTURN_AGENT__KIND to one of: {known}")


def _state_dir(installation: Installation) -> Check:
    root = installation.state.root
    free = asyncio.run(free_bytes(_local(installation), str(root)))
    enough = free >= _MIN_FREE_BYTES
    remedy = "" if enough else "free some space, or set RUNTURN_STATE_DIR to a larger disk"
    return Check("state directory", enough, f"{root}, {free // 2**20:,} MiB free", remedy)


def _broker(installation: Installation) -> Check:
    if installation.embedded is not None and not installation.embedded.running():
        remedy = "start it, with a worker: runturn up; or set RUNTURN_BROKER_URL to one of your own"
        return Check("broker", False, "the embedded one is not running", remedy)
    return Check("broker", True, installation.app.connection_for_write().as_uri())


def _worker(installation: Installation) -> Check:
    answers = installation.app.control.inspect(timeout=_PING_S, limit=1).ping() or {}
    remedy = "" if answers else "start one: runturn up, or runturn worker"
    return Check("worker", bool(answers), ", ".join(sorted(answers)) or "none answers", remedy)


def _ledger(installation: Installation) -> Check:
    depths = ", ".join(f"{count} {state}" for state, count in installation.ledger.queue_depths().items())
    return Check("ledger", True, depths)


def _tools(installation: Installation) -> Check:
    asyncio.run(check_tools(_local(installation)))
    return Check("tools", True, "all that a host needs is there")


def _agent(installation: Installation, adapter: Adapter) -> Check:
    output = asyncio.run(probe(_local(installation), adapter.probe(), _PROBE_S))
    end = Exit(output.exit, output.stderr.decode(errors="replace"))
    health = adapter.health(end, output.stdout.decode(errors="replace"))
    name = f"agent {adapter.name}"
    if not health.healthy:
        configured = adapter.name == installation.settings.agent.kind
        detail = "not usable" if configured else "not usable; it is not the configured agent"
        remedy = f"{health.problem}; if it lies outside the worker's PATH, set RUNTURN_AGENT__COMMAND"
        return Check(name, not configured, detail, remedy)
    present = [variable for variable in adapter.credentials(os.environ) if variable in os.environ]
    login = f"; credentials in the environment: {', '.join(present)}" if present else ""
    found = f"version {health.version}" if health.version else "usable"
    return Check(name, True, f"{found}{login}")


def _spools(installation: Installation) -> Check:
    spools = asyncio.run(list_spools(_local(installation), str(installation.state.spool)))
    alive = sum(spool.alive for spool in spools)
    return Check("spools", True, f"{alive} running, {len(spools) - alive} left over")


def _local(installation: Installation) -> LocalHost:
    return LocalHost(scrubbed(os.environ, keep=()), installation.settings.host_name)

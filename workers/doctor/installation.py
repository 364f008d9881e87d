"""Checks of everything a turn needs, each with what to do about it. No problem makes them raise or hang."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Protocol

from celery import Celery

from adapters.errors import InvalidRequest
from adapters.registry import Registry
from adapters.toolkit.tool_functions import Toolbox
from ops.errors import ArchiveUnavailable
from ops.ledger import Ledger
from ops.settings import Settings
from ops.settings.state_dir import StateDir
from ops.transcripts import Archive
from remote.daemon_threads import DaemonExecutor
from workers.brokers.embedded import EmbeddedBroker
from workers.brokers.health import fault_of_redis, reservation_about_redis
from workers.brokers.ping import roll_call
from workers.brokers.settings import queue_names, speaks_redis
from workers.doctor.check import Begun, Check, bounded
from workers.doctor.host import HostDoctor
from workers.doctor.workers import ask
from workers.hosts.from_settings import configured_hosts
from workers.hosts.inventory import Hosts, TurnHost

_PING_S = 5.0
_ROLL_CALL_S = 2.0  # for the others, once one has answered
_ASK_S = 60.0  # for all checks of the workers
_HURRY_S = 3.0  # likewise, if they are waiting for the ledger
_OVERDUE_S = 600.0  # of a transcript
_MANY = 1_000


class Installation(Protocol):
    """The installation under examination; any part of it may raise any error when read."""

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
        """The ledger."""

    @property
    def embedded(self) -> EmbeddedBroker | None:
        """The embedded broker, if it is in use."""

    @property
    def app(self) -> Celery:
        """The application, with a broker that answers."""


def examine(installation: Installation, only: str | None = None) -> Iterator[Check]:
    """Yield all checks, in the order in which to fix things. Skip those that need something broken.

    Workers examine their hosts themselves, if any answers: only they see what their agents see. `only` names a
    host; all others are skipped, and so is the installation itself. Raise InvalidRequest if there is no such host,
    before yielding any check.
    """
    configuration = bounded("configuration", partial(_configuration, installation))
    if only is None or not configuration.ok:
        yield configuration
    if not configuration.ok:
        return
    _chosen(installation, only)
    able: list[str] = []  # workers to ask
    # All begin at once: the doctor has an answer within seconds, whatever has none.
    look = partial(Begun, "ledger", partial(_ledger, installation))
    ledger = look() if only is None else None
    broker = Begun("broker", partial(_broker, installation))
    worker = Begun("worker", lambda: _worker(installation, able) if broker.outcome().ok else broker.outcome())
    if ledger is not None:
        yield from _own(installation, ledger, broker, worker)
    elif not broker.outcome().ok:
        yield replace(broker.outcome(), ok=True, warning=True)  # the host is examined from here
    if worker.outcome().ok:
        yield from ask(installation.app, able, only, _ASK_S if (ledger or look()).outcome().ok else _HURRY_S)
    else:
        yield from examine_hosts(installation, only)


def _own(installation: Installation, ledger: Begun, broker: Begun, worker: Begun) -> Iterator[Check]:
    if installation.registry.failed:
        yield _unloadable(installation.registry)
    if installation.settings.tools:
        yield bounded("tool functions", partial(_tool_functions, installation.settings))
    if installation.settings.include:
        yield bounded("included modules", partial(_included, installation.settings))
    yield (state := bounded("state directory", partial(_state_dir, installation)))
    if not state.ok:
        return
    yield ledger.outcome()
    if ledger.outcome().ok:
        yield bounded("dead letters", partial(_dead_letters, installation))
        if installation.settings.transcripts_url is not None:
            yield bounded("transcripts", partial(_transcripts, installation))
    yield broker.outcome()
    if broker.outcome().ok:
        yield worker.outcome()


def examine_hosts(installation: Installation, only: str | None, *, over_ssh: bool = True) -> Iterator[Check]:
    """Yield all checks of this process's hosts, in its environment; of `only` one, if given.

    `over_ssh`: also of hosts that every worker reaches alike. Raise InvalidRequest if there is no such host.
    """
    chosen = [host for host in _chosen(installation, only) if over_ssh or host.launcher == "local"]
    with asyncio.Runner() as runner:  # one for all: hosts may share a jump host's connection
        runner.get_loop().set_default_executor(DaemonExecutor())  # a hanging call must not delay the exit
        for host in chosen:
            yield from _host_doctor(installation, host, only).examine(runner)


def _chosen(installation: Installation, only: str | None) -> list[TurnHost]:
    hosts = _hosts(installation)
    chosen = [host for host in hosts if only in (None, host.name)]
    if not chosen:
        known = ", ".join(sorted(host.name for host in hosts))
        raise InvalidRequest(f"there is no host {only!r}; known: {known}", field="host")
    return chosen


def _host_doctor(installation: Installation, host: TurnHost, only: str | None) -> HostDoctor:
    settings = installation.settings
    return HostDoctor(
        host,
        settings,
        installation.registry,
        lambda: installation.ledger,
        os.environ,
        in_use=host.launcher == "ssh" or host.name == only or not settings.ssh_hosts,
    )


def _hosts(installation: Installation) -> Hosts:
    """Return the hosts, even if the state directory is broken: the checks then report that."""
    return configured_hosts(installation.settings, StateDir(installation.settings.state_dir))


def _configuration(installation: Installation) -> Check:
    settings = installation.settings
    _hosts(installation)
    if settings.agent.kind in installation.registry.names:
        return Check("configuration", True, f"valid; the default agent is {settings.agent.kind}")
    known = ", ".join(installation.registry.names)
    detail = f"agent.kind: there is no agent {settings.agent.kind!r}"
    return Check("configuration", False, detail, f"set RUNTURN_AGENT__KIND to one of: {known}")


def _unloadable(registry: Registry) -> Check:
    reasons = "; ".join(f"{failed.name} of {failed.source}: {failed.reason}" for failed in registry.failed)
    return Check("agents", False, f"not loaded: {reasons}", "fix or uninstall the packages that provide them")


def _state_dir(installation: Installation) -> Check:
    return Check("state directory", True, str(installation.state.root))


def _broker(installation: Installation) -> Check:
    if installation.embedded is not None and not installation.embedded.running():
        remedy = "start it, with a worker: runturn up; or set RUNTURN_BROKER_URL to another broker"
        return Check("broker", False, "the embedded broker is not running", remedy)
    with installation.app.connection_for_write() as connection:
        detail = connection.as_uri()
        if not speaks_redis(installation.app.conf.broker_url):
            return Check("broker", True, detail)
        client = connection.default_channel.client
        problem, remedy = fault_of_redis(client.info())
        if problem:
            return Check("broker", False, f"{detail}: {problem}", remedy)
        configuration: dict[str, object] = {}
        with suppress(*connection.channel_errors):  # hosted servers have no CONFIG
            configuration = client.config_get("appendfsync")
    reservation, remedy = reservation_about_redis(configuration)
    if reservation:
        return Check("broker", True, f"{detail}: {reservation}", remedy, warning=True)
    return Check("broker", True, detail)


def _worker(installation: Installation, able: list[str]) -> Check:
    """Check that a worker consumes our queue; add all such workers to `able`."""
    app = installation.app
    own = queue_names(app)[0]
    heard = roll_call(app, _PING_S, limit=1)
    if heard:
        heard |= roll_call(app, _ROLL_CALL_S)
    able += sorted(name for name, queues in heard.items() if own in queues)
    if able:
        return Check("worker", True, ", ".join(able))
    if not heard:
        return Check("worker", False, "none answers", "start one: runturn up, or runturn worker")
    known = "; ".join(f"{name} consumes {', '.join(queues)}" for name, queues in sorted(heard.items()))
    remedy = "give workers and producers the same RUNTURN_QUEUES"
    return Check("worker", False, f"no answering worker consumes {own}: {known}", remedy)


def _dead_letters(installation: Installation) -> Check:
    waiting = installation.ledger.dead_letters.count()
    remedy = "list them, then retry or remove them: runturn dead list" if waiting else ""
    return Check("dead letters", not waiting, f"{waiting} waiting", remedy)


def _included(settings: Settings) -> Check:
    """Find the modules without importing them: they may do anything."""
    for name in settings.include:
        try:
            found = find_spec(name) is not None
        except ImportError:
            found = False
        if not found:
            remedy = "install it for the workers, or correct RUNTURN_INCLUDE"
            return Check("included modules", False, f"there is no module {name}", remedy)
    return Check("included modules", True, ", ".join(settings.include))


def _tool_functions(settings: Settings) -> Check:
    toolbox = Toolbox.installed(settings.tools)
    try:
        toolbox.load(toolbox.names)
    except InvalidRequest as error:
        remedy = "install the package that provides it for the workers, or correct the tools setting"
        return Check("tool functions", False, error.message.removeprefix("options.tools: "), remedy)
    return Check("tool functions", True, ", ".join(toolbox.names))


def _transcripts(installation: Installation) -> Check:
    url = installation.settings.transcripts_url
    assert url is not None  # noqa: S101  # checked by the caller
    archive = Archive.at(url.get_secret_value())
    try:
        archive.check()
    except ArchiveUnavailable as error:
        remedy = "fix the archive, or correct RUNTURN_TRANSCRIPTS_URL; the ledger keeps the transcripts until then"
        return Check("transcripts", False, str(error), remedy)
    waiting = len(
        installation.ledger.transcripts.unarchived(installation.ledger.clock() - _OVERDUE_S, limit=_MANY)
    )
    count = f"{waiting} or more" if waiting == _MANY else str(waiting)
    remedy = "workers with the same RUNTURN_TRANSCRIPTS_URL write them; check their logs" if waiting else ""
    return Check("transcripts", not waiting, f"{archive.name}: {count} overdue", remedy)


def _ledger(installation: Installation) -> Check:
    depths = ", ".join(f"{count} {state}" for state, count in installation.ledger.reports.queue_depths().items())
    return Check("ledger", True, depths)

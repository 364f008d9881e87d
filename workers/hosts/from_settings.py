"""Hosts of an installation, built from its settings."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from adapters.isolation import Isolation, Network, strictest
from ops.errors import SettingsError
from ops.metrics import WorkerMetrics
from ops.redaction import scrubbed
from ops.settings import Settings, SshHostSettings
from ops.settings.state_dir import StateDir
from remote.containment import Containment
from remote.errors import HostError
from remote.local import LocalHost
from remote.ssh.connector import Connector
from remote.ssh.host import Observer, SshHost
from remote.ssh.host_keys import HostKeyPolicy, HostKeys
from remote.ssh.target import Target, hops
from workers.hosts.errors import turn_error
from workers.hosts.inventory import Hosts, TurnHost

# Read by ssh itself, and in addition to our own file.
_KNOWN_HOSTS = (Path("~/.ssh/known_hosts"), Path("~/.ssh/known_hosts2"), Path("/etc/ssh/ssh_known_hosts"))


class _HostObserver(Observer):
    """Counts connections and refusals."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def connected(self, host: str, seconds: float) -> None:
        self._metrics.host_connected(host, seconds)

    def refused(self, host: str, error: HostError) -> None:
        self._metrics.host_refused(host, turn_error(error).kind)


def configured_hosts(settings: Settings, state: StateDir, metrics: WorkerMetrics | None = None) -> Hosts:
    """Return this machine and all SSH hosts. If there are SSH hosts, turns run here only on request.

    `metrics` record the state of the hosts. Raises SettingsError naming the faulty setting.
    """
    if settings.host_name in {host.name for host in settings.ssh_hosts}:
        text = f"{settings.host_name} is the worker's own machine; change the host's name, or host_name"
        raise SettingsError(text, field="ssh_hosts", where="settings")
    targets = [_target(host) for host in settings.ssh_hosts]
    connector = Connector(
        targets,
        _host_keys(settings, state),
        config_file=settings.ssh.config_file,
        timeout_s=settings.ssh.connect_timeout_ms / 1000,
    )
    this_machine = LocalHost(scrubbed(os.environ, keep=()), settings.host_name)
    local = TurnHost(
        this_machine,
        str(state.spool),
        workspaces_dir=str(state.workspaces),
        least=_containment(settings),
    )
    observer = _HostObserver(metrics) if metrics is not None else None
    remote = [SshHost(target, connector, observer=observer) for target in targets]
    entries = [_ssh_host(host, given) for host, given in zip(remote, settings.ssh_hosts, strict=True)]
    if metrics is not None:
        metrics.watch_host(local.name, None, lambda: True)
        for host, entry in zip(remote, entries, strict=True):
            metrics.watch_host(host.name, entry.slots, partial(_is_up, host))
            metrics.watch_connections(host.name, partial(getattr, host, "connections"))
    return Hosts([local, *entries], default=[entry.name for entry in entries] or None)


def _target(host: SshHostSettings) -> Target:
    try:
        place = hops(host.address or host.name)[0]
        before = {hop.name for hop in hops(host.jump)} if host.jump is not None else set()
    except ValueError as error:
        raise SettingsError(str(error), field=f"ssh_hosts.{host.name}", where="settings") from None
    if host.name in before:
        raise SettingsError(
            "a host cannot be its own jump host", field=f"ssh_hosts.{host.name}.jump", where="settings"
        )
    return Target(
        name=host.name,
        address=place.address,
        user=host.user or place.user,
        port=host.port or place.port,
        identity=host.identity,
        jump=host.jump,
        path=":".join(host.path),
    )


def _host_keys(settings: Settings, state: StateDir) -> HostKeys:
    own = settings.ssh.known_hosts or state.root / "known_hosts"
    return HostKeys(own, [path.expanduser() for path in _KNOWN_HOSTS], HostKeyPolicy(settings.ssh.host_keys))


def _ssh_host(host: SshHost, settings: SshHostSettings) -> TurnHost:
    return TurnHost(
        host,
        settings.spool_dir,
        launcher="ssh",
        slots=settings.max_concurrent_agents,
        labels=settings.labels,
        programs=settings.agents,
        forward_env=settings.env,
        forward_credentials=False,
        workspace_roots=settings.workspace_roots,
        workspaces_dir=settings.workspaces_dir,
        least=_containment(settings),
    )


def _containment(settings: Settings | SshHostSettings) -> Containment:
    network = settings.sandbox_network
    apart = Isolation.SANDBOX if network is Network.NONE else None
    asked = Containment.of(strictest(settings.isolation, apart), settings.sandbox_paths, network)
    return replace(
        asked,
        max_memory=settings.max_memory,
        max_processes=settings.max_processes,
        max_cpus=settings.max_cpus,
        max_disk=settings.max_disk,
    )


def _is_up(host: SshHost) -> bool:
    return not host.failing

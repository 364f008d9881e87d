"""Hosts that turns can run on, and their settings."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import NoReturn, TypeVar

from adapters.command import Command
from adapters.errors import InvalidRequest
from adapters.isolation import Isolation, Network, strictest
from adapters.protocol.request import TurnRequest
from remote.containment import AS_USUAL, Containment
from remote.errors import HostError
from remote.host import Host
from remote.spool import Spool
from remote.workspaces import Place

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class TurnHost:
    """One host, as turns see it."""

    host: Host
    spool_root: str
    launcher: str = "local"  # "local", "ssh", or "none" if the host is not configured here
    slots: int | None = None  # concurrent agents, whichever worker started them; None: unlimited
    labels: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)  # of agents, by name; others are found in PATH
    forward_env: tuple[str, ...] = ()  # names of worker variables passed to all its agents
    forward_credentials: bool = True  # also pass the variables that agents log in with
    workspace_roots: tuple[str, ...] = ()  # directories that workspaces must be in; empty: anywhere
    workspaces_dir: str | None = None  # of workspaces that turns bring; None: next to the spools
    least: Containment = AS_USUAL  # of its agents; a request may ask for more

    @property
    def name(self) -> str:
        """The name that requests use."""
        return self.host.name

    def spool(self, spool_id: str, seal: str = "") -> Spool:
        """Return a spool on this host; without its seal, only for queries."""
        return Spool(self.spool_root, spool_id, seal)

    def made(self, turn_id: str) -> Place:
        """Return the place of the workspace that a turn brings."""
        beside = posixpath.join(posixpath.dirname(self.spool_root), "workspaces")
        return Place(self.workspaces_dir or beside, turn_id)

    def admitting_made(self) -> TurnHost:
        """Return the host with turns' own workspaces admitted: they are where the operator wants them."""
        roots = self.workspace_roots
        return replace(self, workspace_roots=(*roots, self.made("").root)) if roots else self

    def admits(self, workspace: str) -> bool:
        """Return whether a workspace seems to be in an allowed place; the host itself checks the real path.

        Blank: it will be created.
        """
        path = PurePosixPath(posixpath.normpath(workspace))
        roots = self.workspace_roots
        return not (roots and workspace) or any(
            root.startswith("~") or path.is_relative_to(root) for root in roots
        )

    def containment(self, request: TurnRequest) -> Containment:
        """Return how the agent of a turn must be contained here."""
        least = self.least
        memory = _lower(least.max_memory, request.max_memory)
        processes = _lower(least.max_processes, request.max_processes)
        cpus = _lower(least.max_cpus, request.max_cpus)
        disk = _lower(least.max_disk, request.max_disk) if request.has_own_workspace else None
        limited = Isolation.NAMESPACE if memory or processes or cpus else None
        apart = Network.NONE in (least.network, request.sandbox_network)
        level = strictest(least.isolation, request.isolation, limited, Isolation.SANDBOX if apart else None)
        contained = replace(least, isolation=level, network=Network.NONE if apart else Network.FULL)
        return replace(contained, max_memory=memory, max_processes=processes, max_cpus=cpus, max_disk=disk)

    def program(self, agent: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return an agent's command line for this host."""
        return (self.programs.get(agent, argv[0]), *argv[1:])

    def adapt(self, agent: str, command: Command) -> Command:
        """Return an agent's command for this host."""
        return replace(command, argv=self.program(agent, command.argv))


def _lower(*limits: _Number | None) -> _Number | None:
    return min((limit for limit in limits if limit is not None), default=None)


class Hosts:
    """All hosts by name, in order of preference."""

    def __init__(self, hosts: Iterable[TurnHost], default: Iterable[str] | None = None) -> None:
        """`default` names the hosts for requests that ask for none; None: all."""
        self._hosts = {host.name: host for host in hosts}
        self._default = tuple(self._hosts if default is None else default)

    def __iter__(self) -> Iterator[TurnHost]:
        return iter(self._hosts.values())

    def __contains__(self, name: str) -> bool:
        return name in self._hosts

    @property
    def default(self) -> tuple[TurnHost, ...]:
        """Hosts for requests that ask for none."""
        return tuple(self._hosts[name] for name in self._default)

    def carrying(self, labels: Mapping[str, str]) -> tuple[TurnHost, ...]:
        """Return the hosts that have all of these labels."""
        return tuple(host for host in self if carries(host.labels, labels))

    def get(self, name: str) -> TurnHost:
        """Return a host by name. One that is not configured here counts as unreachable."""
        return self._hosts.get(name) or TurnHost(_Unconfigured(name), "/nowhere", launcher="none")

    def candidates(self, request: TurnRequest) -> tuple[TurnHost, ...]:
        """Return the hosts that a request may run on, at least one. Raise InvalidRequest if there is none."""
        if request.host is not None:
            return (self._named(request.host, request.host_labels),)
        found = self.carrying(request.host_labels) if request.host_labels else self.default
        if not found:
            raise InvalidRequest(
                f"no host has all of these labels; configured: {self._described()}", field="host_labels"
            )
        return found

    async def close(self) -> None:
        """Close all connections; turns keep running."""
        for entry in self:
            await entry.host.close()

    def _named(self, name: str, labels: Mapping[str, str]) -> TurnHost:
        if name not in self._hosts:
            raise InvalidRequest(
                f"there is no host {name!r}; known: {', '.join(sorted(self._hosts))}", field="host"
            )
        if not carries(self._hosts[name].labels, labels):
            raise InvalidRequest(
                f"host {name} lacks some of these labels; configured: {self._described()}", field="host_labels"
            )
        return self._hosts[name]

    def _described(self) -> str:
        return "; ".join(
            f"{host.name} ({', '.join(f'{name}={value}' for name, value in host.labels.items()) or 'no labels'})"
            for host in self
        )


def carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether these labels include all that are wanted."""
    return all(labels.get(name) == value for name, value in wanted.items())


@dataclass(frozen=True, slots=True)
class _Unconfigured:
    """A host that only another worker has, or had, configured."""

    name: str
    path: str = ""
    rest_s: float = 0.0

    async def open_channel(self) -> NoReturn:
        # Not HostUnreachable, which is retried for a while: that cannot help here.
        raise HostError(
            self.name,
            "it is not in this worker's configuration; add it to ssh_hosts again, "
            "or set host_name if it is the worker's own machine",
        )

    async def close(self) -> None:
        """Do nothing: there is no connection."""

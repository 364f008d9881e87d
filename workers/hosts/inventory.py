"""The hosts that turns can run on, and what an operator says about each."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import NoReturn

from adapters.command import Command
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from remote.errors import HostError
from remote.host import Host
from remote.spool import Spool
from remote.workspaces import Place


@dataclass(frozen=True, slots=True)
class TurnHost:
    """One host, as turns see it."""

    host: Host
    spool_root: str
    launcher: str = "local"  # "local", "ssh", or "none" if the host is not configured here
    slots: int | None = None  # agents at a time, whoever started them; None: no limit of its own
    labels: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)  # of agents, by name; others are in its PATH
    forward_env: tuple[str, ...] = ()  # names of the worker's variables that all its agents see
    forward_credentials: bool = True  # the variables that agents log in with go along unasked
    workspace_roots: tuple[str, ...] = ()  # workspaces lie in one of these; empty: anywhere
    workspaces_dir: str | None = None  # where those are made that turns bring; None: beside the spools

    @property
    def name(self) -> str:
        """What requests call it."""
        return self.host.name

    def spool(self, spool_id: str) -> Spool:
        """A spool on it."""
        return Spool(self.spool_root, spool_id)

    def made(self, turn_id: str) -> Place:
        """Where the workspace is that a turn brings."""
        beside = posixpath.join(posixpath.dirname(self.spool_root), "workspaces")
        return Place(self.workspaces_dir or beside, turn_id)

    def admitting_made(self) -> TurnHost:
        """The same host, for turns in made workspaces, too: they are where the operator wants them."""
        roots = self.workspace_roots
        return replace(self, workspace_roots=(*roots, self.made("").root)) if roots else self

    def admits(self, workspace: str) -> bool:
        """Whether a workspace seems to lie where it may; the host itself looks where the path really leads.

        Blank: it will be made.
        """
        path = PurePosixPath(posixpath.normpath(workspace))
        roots = self.workspace_roots
        return not (roots and workspace) or any(
            root.startswith("~") or path.is_relative_to(root) for root in roots
        )

    def program(self, agent: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        """An agent's command line as this host needs it."""
        return (self.programs.get(agent, argv[0]), *argv[1:])

    def adapt(self, agent: str, command: Command) -> Command:
        """An agent's command as this host needs it."""
        return replace(command, argv=self.program(agent, command.argv))


class Hosts:
    """All hosts by name, in the order of preference."""

    def __init__(self, hosts: Iterable[TurnHost], default: Iterable[str] | None = None) -> None:
        """`default` names those that requests without a wish may run on; all by default."""
        self._hosts = {host.name: host for host in hosts}
        self._default = tuple(self._hosts if default is None else default)

    def __iter__(self) -> Iterator[TurnHost]:
        return iter(self._hosts.values())

    def __contains__(self, name: str) -> bool:
        return name in self._hosts

    @property
    def default(self) -> tuple[TurnHost, ...]:
        """Those that requests without a wish may run on."""
        return tuple(self._hosts[name] for name in self._default)

    def carrying(self, labels: Mapping[str, str]) -> tuple[TurnHost, ...]:
        """Those that have all of these labels."""
        return tuple(host for host in self if carries(host.labels, labels))

    def get(self, name: str) -> TurnHost:
        """A host by its name. One that is not configured here counts as out of reach."""
        return self._hosts.get(name) or TurnHost(_Unconfigured(name), "/nowhere", launcher="none")

    def candidates(self, request: TurnRequest) -> tuple[TurnHost, ...]:
        """The hosts that a request may run on, at least one. Raises InvalidRequest naming what there is."""
        if request.host is not None:
            return (self._named(request.host, request.host_labels),)
        found = self.carrying(request.host_labels) if request.host_labels else self.default
        if not found:
            raise InvalidRequest(f"no host has all of these; there are: {self._described()}", field="host_labels")
        return found

    async def close(self) -> None:
        """End all connections; turns go on."""
        for entry in self:
            await entry.host.close()

    def _named(self, name: str, labels: Mapping[str, str]) -> TurnHost:
        if name not in self._hosts:
            raise InvalidRequest(
                f"there is no host {name!r}; known: {', '.join(sorted(self._hosts))}", field="host"
            )
        if not carries(self._hosts[name].labels, labels):
            raise InvalidRequest(f"host {name} has not all of these; {self._described()}", field="host_labels")
        return self._hosts[name]

    def _described(self) -> str:
        return "; ".join(
            f"{host.name} ({', '.join(f'{name}={value}' for name, value in host.labels.items()) or 'no labels'})"
            for host in self
        )


def carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a host with these labels has all that are wanted."""
    return all(labels.get(name) == value for name, value in wanted.items())


@dataclass(frozen=True, slots=True)
class _Unconfigured:
    """A host that another worker knows, or knew."""

    name: str
    path: str = ""
    rest_s: float = 0.0

    async def open_channel(self) -> NoReturn:
        # Not HostUnreachable, which is tried again for a while: here, that cannot help.
        raise HostError(
            self.name,
            "it is not in this worker's configuration; add it to ssh_hosts again, "
            "or set host_name if it is the worker's own machine",
        )

    async def close(self) -> None:
        """There is nothing to end."""

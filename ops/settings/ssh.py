"""Table `ssh`, and the SSH hosts."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from adapters.isolation import Isolation, Network
from adapters.protocol.request import EnvName, Label, Name
from adapters.protocol.resources import Cpus, Disk, Memory, Processes
from ops.settings.values import HostPath, LocalPath, Milliseconds, Printable, SandboxPath


class SshSettings(BaseModel):
    """Table `ssh`: settings of all `ssh_hosts`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host_keys: Literal["accept-new", "strict", "off"] = Field(
        default="accept-new",
        description="`accept-new` records keys of new hosts, `strict` accepts only recorded keys, "
        "`off` checks none.",
    )
    known_hosts: LocalPath | None = Field(
        default=None,
        description="File that records new host keys; ssh's own files are read too. "
        "Default: in the state directory.",
    )
    config_file: LocalPath | None = Field(
        default=None, description="The ssh_config to follow. Default: `~/.ssh/config`."
    )
    connect_timeout_ms: Milliseconds = Field(
        default=30_000, description="Time limit for connecting, login included."
    )


class SshHostSettings(BaseModel):
    """One of `ssh_hosts`: a machine that runs turns over SSH. Its entries in ssh_config apply too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="Its name in requests.")
    address: Printable | None = Field(
        default=None, description="`[user@]address[:port]`, or an alias in ssh_config. Default: the name."
    )
    user: Printable | None = Field(
        default=None, description="User to log in as. Default: from ssh_config, else the worker's user."
    )
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="Port. Default: from ssh_config, else 22."
    )
    identity: LocalPath | None = Field(
        default=None,
        description="Private key to log in with; no other is tried. Default: the keys that ssh would try.",
    )
    jump: Printable | None = Field(
        default=None,
        description="Jump hosts: names of `ssh_hosts` or `[user@]address[:port]`, comma-separated. "
        "Default: from ssh_config.",
    )
    max_concurrent_agents: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Maximum number of agents at a time, across all workers. Default: no limit."
    )
    labels: dict[Name, Label] = Field(
        default={}, description="Labels of this host, matched against the `host_labels` of requests."
    )
    agents: dict[Name, Printable] = Field(
        default={},
        description='Programs of agents, as in `{ claude-code = "/opt/claude/bin/claude" }`; '
        "others are looked up on the PATH.",
    )
    path: tuple[HostPath, ...] = Field(default=(), description="Directories to prepend to the host's PATH.")
    env: tuple[EnvName, ...] = Field(
        default=(),
        description="Names of worker variables to pass to agents there. Nothing else is passed except what a turn "
        "names.",
    )
    workspace_roots: tuple[HostPath, ...] = Field(
        default=(), description="Directories that may contain workspaces. Default: any."
    )
    spool_dir: str = Field(
        default="~/.local/state/runturn/spool",
        pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$",
        description="Directory on the host for the spools of turns.",
    )
    isolation: Isolation = Field(
        default=Isolation.NONE,
        description="Minimum isolation level for agents on this host; see the setting of that name.",
    )
    max_memory: Memory | None = Field(
        default=None, description="Limit on the memory of one turn's processes on this host, such as `4GiB`."
    )
    max_processes: Processes | None = Field(
        default=None, description="Limit on the number of one turn's processes on this host."
    )
    max_cpus: Cpus | None = Field(
        default=None,
        description="CPU limit of one turn on this host, in cores, such as `1.5`. Requires systemd and cgroup v2; "
        "turns are refused without.",
    )
    max_disk: Disk | None = Field(
        default=None,
        description="Limit on the files in the workspace that a turn brings to this host, such as `10GiB`.",
    )
    sandbox_paths: tuple[SandboxPath, ...] = Field(
        default=(), description="Paths on this host that sandboxes show, too; see the setting of that name."
    )
    sandbox_network: Network = Field(
        default=Network.FULL, description="Network of sandboxes on this host; see the setting of that name."
    )
    workspaces_dir: str | None = Field(
        default=None,
        pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$",
        description="Directory on the host for new workspaces. Default: `workspaces` next to `spool_dir`.",
    )


def _named(entry: object) -> object:
    """Return a host given as text as a table; its address is its name."""
    if not isinstance(entry, str):
        return entry
    match = re.fullmatch(r"(?:[^@]+@)?([^@:]+)(?::\d+)?", entry)
    if match is None:
        raise ValueError(f"{entry!r} is not of the form [user@]address[:port]; use a table with name and address")
    return {"name": match[1], "address": entry}


def _distinct(hosts: tuple[SshHostSettings, ...]) -> tuple[SshHostSettings, ...]:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the name {name} is used twice; choose different ones")
    return hosts


SshHosts = Annotated[tuple[Annotated[SshHostSettings, BeforeValidator(_named)], ...], AfterValidator(_distinct)]

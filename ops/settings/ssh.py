"""Table `ssh`, and the hosts that are reached so."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from adapters.protocol.request import EnvName, Label, Name
from ops.settings.values import HostPath, LocalPath, Milliseconds, Printable


class SshSettings(BaseModel):
    """Table `ssh`: what holds for all of `ssh_hosts`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host_keys: Literal["accept-new", "strict", "off"] = Field(
        default="accept-new",
        description="`accept-new` keeps the key of a new host, `strict` takes known ones only, `off` checks none.",
    )
    known_hosts: LocalPath | None = Field(
        default=None,
        description="The file that new host keys are kept in; those of ssh are read, too. "
        "Left out: in the state directory.",
    )
    config_file: LocalPath | None = Field(
        default=None, description="The ssh_config to follow; left out: `~/.ssh/config`."
    )
    connect_timeout_ms: Milliseconds = Field(default=30_000, description="For a connection, login included.")


class SshHostSettings(BaseModel):
    """One of `ssh_hosts`: a machine that turns run on over SSH. What ssh_config says about it holds, too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="What requests call it.")
    address: Printable | None = Field(
        default=None, description="`[user@]address[:port]`, or an alias of ssh_config; left out: the name."
    )
    user: Printable | None = Field(default=None, description="Left out: what ssh_config says, else the worker's.")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="Left out: what ssh_config says, else 22."
    )
    identity: LocalPath | None = Field(
        default=None,
        description="The private key to log in with, and the only one that is tried; left out: those of ssh.",
    )
    jump: Printable | None = Field(
        default=None,
        description="The way there: names of `ssh_hosts` or `[user@]address[:port]`, comma-separated; "
        "left out: what ssh_config says.",
    )
    max_concurrent_agents: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Agents at a time, whichever worker starts them; left out: no limit."
    )
    labels: dict[Name, Label] = Field(default={}, description="For requests with `host_labels`.")
    agents: dict[Name, Printable] = Field(
        default={},
        description='Where the programs of agents are, as in `{ claude-code = "/opt/claude/bin/claude" }`; '
        "others are looked for in the PATH.",
    )
    path: tuple[HostPath, ...] = Field(default=(), description="Directories before the host's PATH.")
    env: tuple[EnvName, ...] = Field(
        default=(),
        description="Names of the worker's variables that agents there see; nothing else goes along but what "
        "a turn names.",
    )
    workspace_roots: tuple[HostPath, ...] = Field(
        default=(), description="Workspaces lie in one of these; left out: anywhere."
    )
    spool_dir: str = Field(
        default="~/.local/state/runturn/spool",
        pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$",
        description="On the host, where running turns are kept.",
    )
    workspaces_dir: str | None = Field(
        default=None,
        pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$",
        description="On the host, where workspaces are made; left out: in `workspaces`, beside `spool_dir`.",
    )


def _named(entry: object) -> object:
    """A host that is given as text: its name is its address."""
    if not isinstance(entry, str):
        return entry
    match = re.fullmatch(r"(?:[^@]+@)?([^@:]+)(?::\d+)?", entry)
    if match is None:
        raise ValueError(f"{entry!r} is not of the form [user@]address[:port]; give it a name and an address")
    return {"name": match[1], "address": entry}


def _distinct(hosts: tuple[SshHostSettings, ...]) -> tuple[SshHostSettings, ...]:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the name {name} is given twice; set different ones")
    return hosts


SshHosts = Annotated[tuple[Annotated[SshHostSettings, BeforeValidator(_named)], ...], AfterValidator(_distinct)]

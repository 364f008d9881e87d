"""Checks of a host, one function each. They raise HostError for problems that no remedy here covers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from adapters.isolation import Isolation, Network
from adapters.protocol.request import TurnRequest
from ops.ledger import Ledger, SpoolRow
from remote.errors import HostAuthFailed, HostError, HostUnreachable, SpawnRefused
from remote.host_queries import (
    SpoolState,
    check_spool_root,
    check_tools,
    check_workspace,
    clock_offset_s,
    containing_program,
    free_bytes,
    list_spools,
    may_write,
)
from remote.ssh.channel_limit import shells_on_one_connection
from remote.ssh.multiplexed import MAX_CHANNELS
from workers.doctor.check import Check
from workers.hosts.inventory import TurnHost

_ANY = TurnRequest(prompt="Check this host.", workspace="/")  # a turn without demands of its own
_MIN_FREE_BYTES = 256 * 1024 * 1024
# Turns and leases need no common clock. Signed logins do: AWS refuses a request that is five minutes off.
_MAX_CLOCK_OFFSET_S = 60.0

_REACH = "start it if it is down, or correct its address, port or jump in ssh_hosts; ssh -v shows more"
_HOST_KEY = "ask its administrator which key it has before changing anything here"
_ORPHANED = (
    "orphaned: nothing to do; no attempt in this ledger is open for them, and they are terminated when their "
    "lease expires, unless workers with another ledger renew it"
)
_ALONE = (
    "without a worker: if none is running, start one, which takes them over; if none starts, they are "
    "terminated when their lease expires"
)
_NAMESPACES = (
    "let its users make namespaces: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, and on "
    "Ubuntu kernel.apparmor_restrict_unprivileged_userns or an AppArmor profile for unshare; or install bubblewrap"
)
_UNREADABLE = "upgrade the workers: they book the usage, and remove these spools"
_LOGIN = "the worker's user must be able to log in without a password; test it with: ssh -o BatchMode=yes"


def remedy_for_silence(host: TurnHost, name: str) -> str:
    """Return what to do when a check gets no answer in time."""
    if name == "reach":
        return _REACH
    return f"check the load, disks and network of {host.name}; then: runturn doctor --host {host.name}"


async def reach(host: TurnHost) -> Check:
    """Connect and log in. Name what fails: the connection, the host key, or the login."""
    begun = time.monotonic()
    try:
        channel = await host.host.open_channel()
    except HostUnreachable as error:
        return Check("reach", False, error.message, _REACH)
    except HostAuthFailed as error:
        return Check("login", False, error.message, _LOGIN)
    except HostError as error:  # changed, unknown, or impossible to compare
        return Check("host key", False, error.message, _HOST_KEY)
    taken_s = time.monotonic() - begun
    await channel.close()
    return Check("reach", True, f"got a shell in {taken_s:.1f} s")


async def host_key(policy: str) -> Check:
    """Report what `reach` found out about the host key."""
    return Check("host key", True, "NOT CHECKED: ssh.host_keys is off" if policy == "off" else "trusted")


async def login() -> Check:
    """Report what `reach` found out about the login."""
    return Check("login", True, "accepted")


async def tools(host: TurnHost) -> Check:
    """Check for a shell, and for the programs that every turn needs."""
    try:
        await check_tools(host.host)
    except SpawnRefused as refusal:
        return Check("tools", False, refusal.message, f"install it, or add its directory to {_path(host)}")
    except HostUnreachable as error:
        remedy = f"use an account that can run commands (no nologin, no ForceCommand), with sh in {_path(host)}"
        return Check("tools", False, error.message, remedy)
    return Check("tools", True, "all required programs found")


async def spool_directory(host: TurnHost) -> Check:
    """Check for a place to write the turns' output, with room for it."""
    name, setting = "spool directory", "RUNTURN_STATE_DIR" if _is_local(host) else f"{host.name}'s spool_dir"
    try:
        await check_spool_root(host.host, host.spool_root)
    except SpawnRefused as refusal:
        remedy = f"make it writable for the login user, or set {setting} to another directory"
        return Check(name, False, refusal.message, remedy)
    free = await free_bytes(host.host, host.spool_root)
    enough = free >= _MIN_FREE_BYTES
    remedy = "" if enough else f"free some space, or set {setting} to a directory on a larger disk"
    return Check(name, enough, f"{host.spool_root}, {free // 2**20:,} MiB free", remedy)


async def isolation(host: TurnHost) -> Check:
    """Check whether agents get the isolation and the limits that they are to have."""
    wanted = host.containment(_ANY)
    if wanted.isolation is Isolation.NONE:
        return Check("isolation", True, "none, as configured")
    try:
        program, unlimited = await containing_program(host.host, wanted)
    except SpawnRefused as refusal:
        remedy = _NAMESPACES if "namespaces" in refusal.message else ""  # others carry their own
        return Check("isolation", False, refusal.message, remedy)
    limits = f"checked once a second; no CPU limits ({unlimited})" if unlimited else "enforced by systemd"
    network = " without a network" if wanted.network is Network.NONE else ""
    return Check("isolation", True, f"{wanted.isolation}{network}, by {program}; limits are {limits}")


async def workspaces(host: TurnHost, root: str) -> Check:
    """Check one of the directories that workspaces must be in."""
    name = f"workspaces {root}"
    try:
        await check_workspace(host.host, root)
    except SpawnRefused as refusal:
        return Check(name, False, refusal.message, f"create it, or correct {host.name}'s workspace_roots")
    if await may_write(host.host, root):
        return Check(name, True, "writable")
    return Check(name, False, "not writable", f"make it writable for the user that logs in to {host.name}")


async def channels(host: TurnHost) -> Check:
    """Check how many turns one connection can carry."""
    count = await shells_on_one_connection(host.host, MAX_CHANNELS)
    if count == MAX_CHANNELS:
        return Check("channels", True, f"{count} shells on one connection")
    per = "a connection for every turn" if count == 1 else f"a connection for every {count} turns"
    detail = f"sshd refuses more than {count} on one connection (MaxSessions), so runturn needs {per}"
    remedy = f"set MaxSessions to {MAX_CHANNELS} or more in its sshd_config; sshd's default is 10"
    return Check("channels", False, detail, remedy)


async def clock(host: TurnHost, now: Callable[[], float] = time.time) -> Check:
    """Check whether the host's clock is accurate enough for agents to log in."""
    offset_s = await clock_offset_s(host.host, now)
    if abs(offset_s) < 1:
        return Check("clock", True, "same as ours")
    detail = f"{abs(offset_s):,.0f} s {'ahead of' if offset_s > 0 else 'behind'} ours"
    if abs(offset_s) <= _MAX_CLOCK_OFFSET_S:
        return Check("clock", True, f"{detail}; too little to matter")
    remedy = "synchronize both clocks (NTP): leases do not depend on them, but TLS and agents' signed logins do"
    return Check("clock", False, detail, remedy)


async def spools(host: TurnHost, ledger: Callable[[], Ledger]) -> Check:
    """Check the turns on the host, including those that no worker follows or can book."""
    states = await list_spools(host.host, host.spool_root)
    rows = await asyncio.to_thread(_known, states, ledger)
    running = [state.id for state in states if state.alive]
    orphans = [name for name in running if name not in rows or rows[name].ended_at is not None]
    ours = [rows[name] for name in running if name not in orphans]
    alone = [f"turn {row.turn_id}" for row in ours if not row.owned(ledger().clock())]
    unreadable = [name for name, row in rows.items() if row.unreadable and name not in running]
    groups = (
        (orphans, "orphaned", _ORPHANED),
        (alone, "without a worker", _ALONE),
        (unreadable, "with usage that only a newer runturn can read", _UNREADABLE),
    )
    counts = f"{len(ours) - len(alone)} running, {len(states) - len(running)} left over"
    found = [f"{len(names)} {what}: {', '.join(names)}" for names, what, _ in groups if names]
    remedy = "; ".join(remedy for names, _, remedy in groups if names)
    return Check("spools", True, ", ".join([counts, *found]), remedy)


def _known(states: Collection[SpoolState], ledger: Callable[[], Ledger]) -> Mapping[str, SpoolRow]:
    """Return what the ledger has about spools; do not open it for none. Raises LedgerError."""
    return ledger().accounting.by_spool([state.id for state in states]) if states else {}


def _is_local(host: TurnHost) -> bool:
    return host.launcher == "local"


def _path(host: TurnHost) -> str:
    return "the worker's PATH" if _is_local(host) else f"{host.name}'s path in ssh_hosts"

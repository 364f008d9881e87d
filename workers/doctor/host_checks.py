"""What can be checked on a host, one function each. They raise HostError for what no remedy here is about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from ops.ledger import Ledger, SpoolRow
from remote.errors import HostAuthFailed, HostError, HostUnreachable, SpawnRefused
from remote.host_queries import (
    SpoolState,
    check_spool_root,
    check_tools,
    check_workspace,
    clock_offset_s,
    free_bytes,
    list_spools,
    may_write,
)
from remote.ssh.channel_limit import shells_on_one_connection
from remote.ssh.multiplexed import MAX_CHANNELS
from workers.doctor.check import Check
from workers.hosts.inventory import TurnHost

_MIN_FREE_BYTES = 256 * 1024 * 1024
# Turns and leases need no common clock. Signed logins do: AWS refuses a request that is five minutes off.
_MAX_CLOCK_OFFSET_S = 60.0

_REACH = "start it if it is down, and correct its address, port or jump in ssh_hosts; ssh -v tells more"
_HOST_KEY = "ask its administrator which key it has, before anything is changed here"
_ORPHANED = (
    "orphaned: nothing to do, no attempt in this ledger is open for them, and they end with their lease "
    "unless workers with another ledger hold them"
)
_ALONE = (
    "without a worker: start one if none runs, and it will go on with them; otherwise they end with their lease"
)
_UNREADABLE = "upgrade the workers: they book it, and remove these spools"
_LOGIN = "the worker's user has to get in without a password; try it with: ssh -o BatchMode=yes"


def remedy_for_silence(host: TurnHost, name: str) -> str:
    """What to do when a check has no answer in time."""
    if name == "reach":
        return _REACH
    return f"see what keeps {host.name} busy, its disks, or the way to it; then: runturn doctor --host {host.name}"


async def reach(host: TurnHost) -> Check:
    """Connect and log in. What fails is named: the way there, the host key, or the login."""
    begun = time.monotonic()
    try:
        channel = await host.host.open_channel()
    except HostUnreachable as error:
        return Check("reach", False, error.message, _REACH)
    except HostAuthFailed as error:
        return Check("login", False, error.message, _LOGIN)
    except HostError as error:  # changed, not known, or not to be compared with what is known
        return Check("host key", False, error.message, _HOST_KEY)
    taken_s = time.monotonic() - begun
    await channel.close()
    return Check("reach", True, f"a shell within {taken_s:.1f} s")


async def host_key(policy: str) -> Check:
    """What `reach` has found out about the host key."""
    return Check("host key", True, "NOT CHECKED, as ssh.host_keys says" if policy == "off" else "trusted")


async def login() -> Check:
    """What `reach` has found out about the login."""
    return Check("login", True, "accepted")


async def tools(host: TurnHost) -> Check:
    """A shell, and the programs that every turn needs."""
    try:
        await check_tools(host.host)
    except SpawnRefused as refusal:
        return Check("tools", False, refusal.message, f"install it, or add its directory to {_path(host)}")
    except HostUnreachable as error:
        remedy = f"an account that runs commands is needed (no nologin, no ForceCommand), with sh in {_path(host)}"
        return Check("tools", False, error.message, remedy)
    return Check("tools", True, "all that a host needs is there")


async def spool_directory(host: TurnHost) -> Check:
    """Room for the turns' output."""
    name, setting = "spool directory", "RUNTURN_STATE_DIR" if _is_local(host) else f"spool_dir of {host.name}"
    try:
        await check_spool_root(host.host, host.spool_root)
    except SpawnRefused as refusal:
        remedy = f"let the user that logs in write there, or set {setting} to another directory"
        return Check(name, False, refusal.message, remedy)
    free = await free_bytes(host.host, host.spool_root)
    enough = free >= _MIN_FREE_BYTES
    remedy = "" if enough else f"free some space, or set {setting} to a larger disk"
    return Check(name, enough, f"{host.spool_root}, {free // 2**20:,} MiB free", remedy)


async def workspaces(host: TurnHost, root: str) -> Check:
    """One of the directories that workspaces lie in."""
    name = f"workspaces {root}"
    try:
        await check_workspace(host.host, root)
    except SpawnRefused as refusal:
        return Check(name, False, refusal.message, f"make it, or correct workspace_roots of {host.name}")
    if await may_write(host.host, root):
        return Check(name, True, "can be written")
    return Check(name, False, "cannot be written", f"let the user that logs in to {host.name} write there")


async def channels(host: TurnHost) -> Check:
    """How many turns a connection can carry."""
    count = await shells_on_one_connection(host.host, MAX_CHANNELS)
    if count == MAX_CHANNELS:
        return Check("channels", True, f"{count} shells on one connection")
    per = "a connection for every turn" if count == 1 else f"a connection for every {count} turns"
    detail = f"sshd refuses more than {count} on one connection (MaxSessions), so it takes {per}"
    remedy = f"set MaxSessions to {MAX_CHANNELS} or more in its sshd_config; sshd's default is 10"
    return Check("channels", False, detail, remedy)


async def clock(host: TurnHost, now: Callable[[], float] = time.time) -> Check:
    """Whether its clock is right enough for agents to log in."""
    offset_s = await clock_offset_s(host.host, now)
    if abs(offset_s) < 1:
        return Check("clock", True, "as ours")
    detail = f"{abs(offset_s):,.0f} s {'ahead of' if offset_s > 0 else 'behind'} ours"
    if abs(offset_s) <= _MAX_CLOCK_OFFSET_S:
        return Check("clock", True, f"{detail}; nothing depends on so little")
    remedy = "synchronise both clocks (NTP): leases do not depend on it, but TLS and signed logins of agents do"
    return Check("clock", False, detail, remedy)


async def spools(host: TurnHost, ledger: Callable[[], Ledger], now: Callable[[], float] = time.time) -> Check:
    """The turns that are there, and those among them that nobody follows or can book."""
    states = await list_spools(host.host, host.spool_root)
    rows = await asyncio.to_thread(_known, states, ledger)
    alive = sum(state.alive for state in states)
    running = [state.id for state in states if state.alive and not state.ended]
    orphans = [name for name in running if name not in rows or rows[name].ended_at is not None]
    ours = [rows[name] for name in running if name not in orphans]
    alone = [f"turn {row.turn_id}" for row in ours if not row.owned(now())]
    unreadable = [name for name, row in rows.items() if row.unreadable and name not in running]
    groups = (
        (orphans, "orphaned", _ORPHANED),
        (alone, "without a worker", _ALONE),
        (unreadable, "with usage that only a newer runturn can read", _UNREADABLE),
    )
    counts = f"{alive - len(orphans) - len(alone)} running, {len(states) - alive} left over"
    found = [f"{len(names)} {what}: {', '.join(names)}" for names, what, _ in groups if names]
    remedy = "; ".join(remedy for names, _, remedy in groups if names)
    return Check("spools", True, ", ".join([counts, *found]), remedy)


def _known(states: Collection[SpoolState], ledger: Callable[[], Ledger]) -> Mapping[str, SpoolRow]:
    """What the ledger has about spools; it is not opened for none. Raises LedgerError."""
    return ledger().accounting.by_spool([state.id for state in states]) if states else {}


def _is_local(host: TurnHost) -> bool:
    return host.launcher == "local"


def _path(host: TurnHost) -> str:
    return "the worker's PATH" if _is_local(host) else f"path of {host.name} in ssh_hosts"

"""Checks of everything a turn needs, each with what to do about it. Nothing here raises."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol

from celery import Celery

from adapters.contract import Adapter, Exit
from ops.errors import OpsError
from ops.ledger import Ledger
from ops.redaction import scrubbed
from ops.settings import Settings
from ops.state_dir import StateDir
from remote.errors import HostError
from remote.local import LocalHost
from remote.upkeep import free_bytes, list_spools, probe
from workers.agents import build_registry
from workers.errors import RunturnError

_MIN_FREE_BYTES = 256 * 1024 * 1024
_REMOTE_TOOLS = ("sh", "setsid", "head", "mktemp", "tail")
_PING_S = 2.0


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
    """What is examined; looking at a part of it may raise OpsError or RunturnError."""

    @property
    def settings(self) -> Settings:
        """The configuration."""

    @property
    def state(self) -> StateDir:
        """The state directory."""

    @property
    def ledger(self) -> Ledger:
        """The books."""

    @property
    def app(self) -> Celery:
        """The application, on a broker that answers."""


def examine(installation: Installation) -> list[Check]:
    """All checks, in the order in which to mend things."""
    checks = [_guarded("configuration", lambda: _configuration(installation))]
    if not checks[0].ok:
        return checks
    checks.append(_guarded("state directory", lambda: _state_dir(installation)))
    checks.append(_guarded("broker", lambda: _broker(installation)))
    checks.append(_guarded("worker", lambda: _worker(installation)))
    checks.append(_guarded("ledger", lambda: _ledger(installation)))
    checks.append(_tools())
    checks.extend(_agents(installation.settings))
    checks.append(_guarded("spools", lambda: _spools(installation)))
    return checks


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (OpsError, RunturnError, HostError, OSError) as error:
        return Check(name, False, str(error))


def _configuration(installation: Installation) -> Check:
    build_registry(installation.settings)
    return Check("configuration", True, "valid")


def _state_dir(installation: Installation) -> Check:
    root = installation.state.root
    free = asyncio.run(free_bytes(_local(installation.settings), str(root)))
    enough = free >= _MIN_FREE_BYTES
    remedy = "" if enough else "free some space, or set RUNTURN_STATE_DIR to a larger disk"
    return Check("state directory", enough, f"{root}, {free // 2**20:,} MiB free", remedy)


def _broker(installation: Installation) -> Check:
    return Check("broker", True, installation.app.connection_for_write().as_uri())


def _worker(installation: Installation) -> Check:
    answers = installation.app.control.inspect(timeout=_PING_S).ping() or {}
    remedy = "" if answers else "start one: runturn up, or runturn worker"
    return Check("worker", bool(answers), ", ".join(sorted(answers)) or "none answers", remedy)


def _ledger(installation: Installation) -> Check:
    depths = ", ".join(f"{count} {state}" for state, count in installation.ledger.queue_depths().items())
    return Check("ledger", True, depths or "empty")


def _tools() -> Check:
    missing = [tool for tool in _REMOTE_TOOLS if shutil.which(tool) is None]
    remedy = "install them; Debian has them in dash, util-linux and coreutils" if missing else ""
    return Check("tools", not missing, f"missing: {', '.join(missing)}" if missing else "all there", remedy)


def _agents(settings: Settings) -> Iterator[Check]:
    for adapter in build_registry(settings):
        yield _guarded(f"agent {adapter.name}", partial(_agent, settings, adapter))


def _agent(settings: Settings, adapter: Adapter) -> Check:
    output = asyncio.run(probe(_local(settings), adapter.probe()))
    end = Exit(output.exit, output.stderr.decode(errors="replace"))
    health = adapter.health(end, output.stdout.decode(errors="replace"))
    name = f"agent {adapter.name}"
    if not health.healthy:
        return Check(name, False, "not usable", health.problem or "")
    present = [variable for variable in adapter.credentials if variable in os.environ]
    login = f"; credentials in the environment: {', '.join(present)}" if present else ""
    return Check(name, True, f"version {health.version}{login}")


def _spools(installation: Installation) -> Check:
    spools = asyncio.run(list_spools(_local(installation.settings), str(installation.state.spool)))
    alive = sum(spool.alive for spool in spools)
    return Check("spools", True, f"{alive} running, {len(spools) - alive} left over")


def _local(settings: Settings) -> LocalHost:
    return LocalHost(scrubbed(os.environ, keep=()), settings.host_name)

"""Examination of one host: what is checked, in which order, and when to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from adapters.contract import Adapter
from adapters.registry import Registry
from ops.ledger import Ledger
from ops.settings import Settings
from remote.errors import HostAuthFailed, HostError, HostKeyChanged, HostUnreachable
from workers.agents.probe import AgentReport, logins, look_closely
from workers.doctor import host_checks
from workers.doctor.check import LIMIT_S, Check, unanswered
from workers.hosts.inventory import Hosts, TurnHost

_CLOSE_S = 3.0  # for closing the connections: a frozen host does not notice
_VITAL = ("reach", "host key", "login", "tools")  # without them, nothing else can be checked
_LOST = (HostUnreachable, HostAuthFailed, HostKeyChanged)

_Step = Callable[[], Awaitable[Check]]


@dataclass(frozen=True, slots=True)
class HostDoctor:
    """Examines one host. Stops when it no longer answers."""

    host: TurnHost
    settings: Settings
    registry: Registry
    ledger: Callable[[], Ledger]  # may raise any error of opening it
    environ: Mapping[str, str]  # the worker's, to forward from
    in_use: bool  # whether turns run here without asking for it
    limit_s: float = LIMIT_S  # for each check

    def examine(self, runner: asyncio.Runner) -> Iterator[Check]:
        """Yield all checks. At the end, close the host's connections, which belong to the runner's loop."""
        try:
            for name, step in self._steps():
                check, go_on = runner.run(self._outcome(name, step))
                yield replace(check, host=self.host.name)
                if not go_on:
                    return
        finally:
            runner.run(self._close())

    def _steps(self) -> Iterator[tuple[str, _Step]]:
        host, over_ssh = self.host, self.host.launcher == "ssh"
        if over_ssh:
            yield "reach", partial(host_checks.reach, host)
            yield "host key", partial(host_checks.host_key, self.settings.ssh.host_keys)
            yield "login", host_checks.login
        yield "tools", partial(host_checks.tools, host)
        yield "spool directory", partial(host_checks.spool_directory, host)
        yield "isolation", partial(host_checks.isolation, host)
        for root in host.workspace_roots:
            yield f"workspaces {root}", partial(host_checks.workspaces, host, root)
        for adapter in self.registry:
            needed = self.in_use and adapter.name == self.settings.agent.kind
            yield f"agent {adapter.name}", partial(self._agent, adapter, needed)
        if over_ssh:
            yield "channels", partial(host_checks.channels, host)
            yield "clock", partial(host_checks.clock, host)
        yield "spools", partial(host_checks.spools, host, self.ledger)

    async def _agent(self, adapter: Adapter, needed: bool) -> Check:
        return _checked(await look_closely(self.host, adapter, self.environ, self.settings), self.host, needed)

    async def _outcome(self, name: str, step: _Step) -> tuple[Check, bool]:
        """Return a step's check, and whether to continue with the next step."""
        task = asyncio.ensure_future(step())
        await asyncio.wait({task}, timeout=self.limit_s)
        if not task.done():
            task.add_done_callback(_forget)
            task.cancel()  # without waiting: a channel is slow to close
            return unanswered(name, self.limit_s, host_checks.remedy_for_silence(self.host, name)), False
        error = task.exception()
        if error is None:
            check = task.result()
        elif isinstance(error, HostError):
            remedy = f"fix the problem reported on {self.host.name}; then: runturn doctor --host {self.host.name}"
            check = Check(name, False, error.message, remedy)
        else:  # the doctor must survive what it finds
            check = Check(name, False, str(error) or type(error).__name__)
        return check, check.ok or not (name in _VITAL or isinstance(error, _LOST))

    async def _close(self) -> None:
        closing = asyncio.ensure_future(Hosts([self.host]).close())
        closing.add_done_callback(_forget)
        await asyncio.wait({closing}, timeout=_CLOSE_S)


def _checked(report: AgentReport, host: TurnHost, needed: bool) -> Check:
    """Return the report as a doctor's check. It fails only for an agent that is needed."""
    name, health = f"agent {report.agent}", report.health
    spared = "" if needed else "; only turns that ask for it need it"
    if not health.healthy:
        remedy = f"{health.problem}; if it is installed elsewhere, {_setting(host, report)}"
        return Check(name, not needed, f"{report.program} is not usable{spared}", remedy, warning=not needed)
    words = report.verdict.words
    if report.verdict.refused:
        return Check(name, not needed, f"version {words}{spared}", report.version_remedy, warning=not needed)
    found = f"version {health.version}" if health.version else "usable"
    if report.obstacle is not None:
        words = f"{found}, but no turn can start{spared}"
        return Check(name, not needed, words, report.obstacle, warning=not needed)
    detail = "; ".join([found, *([words] if words else []), *logins(report)])
    return Check(name, True, detail, warning=words is not None)


def _setting(host: TurnHost, report: AgentReport) -> str:
    if host.launcher != "local":
        return f"set agents or path for {host.name} in ssh_hosts"
    return f"set RUNTURN_AGENT__COMMAND, or command in the table {report.agent}"


def _forget(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned task, about which asyncio complains otherwise."""
    if not task.cancelled():
        task.exception()

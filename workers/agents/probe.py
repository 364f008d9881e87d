"""Probes an agent on a host: its program, version, credentials and billing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from adapters.billing import billing_modes
from adapters.contract import Adapter, Billing, Capabilities, Exit, Health
from adapters.errors import TurnError
from adapters.versions import NO_VERDICT, Verdict, listed, reaches, verdict_on
from ops.settings import AgentTable, Settings
from remote.errors import HostError
from remote.host_queries import environment_names, probe
from workers.hosts.inventory import TurnHost

LIMIT_S = 10.0  # for one complete probe
_PROBE_S = 8.0
_NO_CREDENTIALS = "no credentials in its environment, so it must be logged in already"
# Prints the path of a program, as the host would find it.
_WHERE = ("sh", "-c", 'command -v -- "$1"', "sh")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Names of the variables that an agent logs in with, by where they are set. Never a value."""

    forwarded: tuple[str, ...] = ()  # from the worker's environment
    there: tuple[str, ...] = ()  # set on the host
    withheld: tuple[str, ...] = ()  # the worker has them, but the host's settings do not list them
    known: bool = True  # whether the agent has any at all

    @property
    def found(self) -> tuple[str, ...]:
        """Names that the agent sees."""
        return self.forwarded + self.there


@dataclass(frozen=True, slots=True)
class AgentReport:
    """One agent on one host."""

    agent: str
    host: str
    program: str
    health: Health
    capabilities: Capabilities
    reached: bool = True  # whether the host answered at all
    path: str | None = None  # of the program there; None: not found
    verdict: Verdict = NO_VERDICT  # on its version
    credentials: Credentials = field(default_factory=Credentials)
    billing: tuple[Billing, ...] = ()  # the modes it supports, the one in effect first
    logged_in: bool | None = None  # as the agent itself says; None: it was not asked, or cannot tell
    obstacle: str | None = None  # what else keeps it from starting turns, and what to do

    @property
    def usable(self) -> bool:
        """True if turns can run with it."""
        return self.health.healthy and not self.verdict.refused and self.obstacle is None

    @property
    def problem(self) -> str | None:
        """The reason it cannot be used, and what to do; None: it can."""
        return self.health.problem or self.refusal or self.obstacle

    @property
    def refusal(self) -> str | None:
        """The reason its version is refused, and what to do; None: it is not."""
        if not self.verdict.refused:
            return None
        return f"version {self.verdict.words}; {self.version_remedy}"

    @property
    def version_remedy(self) -> str:
        """The remedy for a refused version."""
        proved = self.capabilities.versions.proved if self.capabilities.versions is not None else ()
        better = f"a tested version ({listed(proved)})" if proved else "another version"
        allowing = f'allow_versions = ["{self.health.version}"] in the table {self.agent}'
        return f"install {better} on {self.host}, or allow this one: {allowing}"


Look = Callable[[TurnHost, Adapter, Mapping[str, str], Settings], Awaitable[AgentReport]]


async def look(host: TurnHost, adapter: Adapter, environ: Mapping[str, str], settings: Settings) -> AgentReport:
    """Probe an agent on a host. `environ` is the worker's. Raises HostError; TurnError for a faulty adapter."""
    argv = host.program(adapter.name, adapter.probe())
    there, output, where = await asyncio.gather(
        environment_names(host.host), probe(host.host, argv, _PROBE_S), probe(host.host, (*_WHERE, argv[0]))
    )
    end = Exit(output.exit, output.stderr.decode(errors="replace"))
    health = adapter.health(end, output.stdout.decode(errors="replace"))
    credentials = _credentials(host, adapter, environ, there)
    table, versions = settings.agents.get(adapter.name, AgentTable()), adapter.capabilities.versions
    return AgentReport(
        adapter.name,
        host.name,
        argv[0],
        health,
        adapter.capabilities,
        path=where.stdout.decode(errors="replace").strip() or None,
        verdict=NO_VERDICT if versions is None else verdict_on(health.version, versions, table.allow_versions),
        credentials=credentials,
        billing=billing_modes(table.billing, adapter.capabilities, credentials.found),
    )


async def look_closely(
    host: TurnHost, adapter: Adapter, environ: Mapping[str, str], settings: Settings
) -> AgentReport:
    """Probe an agent like `look`, and also its account: whether it is logged in, and may run as this user."""
    report, wants = await look(host, adapter, environ, settings), adapter.capabilities
    if not report.usable:
        return report
    if wants.root_variable is not None and await _is_barred_root(host, wants.root_variable, environ):
        remedy = f"use another account or, in a container, set {wants.root_variable}=1"
        return replace(report, obstacle=f"it refuses to run as root: {remedy}")
    login = wants.login
    if login is None or report.credentials.found or not reaches(report.health.version, login.since):
        return report
    end = await probe(host.host, (report.program, *login.arguments), _PROBE_S)
    if end.exit == 1:
        return replace(report, logged_in=False, obstacle=f"it is not logged in: {login.remedy}")
    return replace(report, logged_in=True if end.exit == 0 else None)


async def look_safely(
    host: TurnHost,
    adapter: Adapter,
    environ: Mapping[str, str],
    settings: Settings,
    look: Look = look,
    timeout_s: float = LIMIT_S,
) -> AgentReport:
    """Probe without raising or exceeding `timeout_s`: report any failure as the agent's problem."""
    reached = True
    try:
        return await asyncio.wait_for(look(host, adapter, environ, settings), timeout_s)
    except TimeoutError:
        reached, problem = False, f"no answer within {timeout_s:g} s"
    except HostError as error:
        reached, problem = False, error.message
    except TurnError as error:
        problem = error.message
    except Exception as error:
        problem = str(error) or type(error).__name__
    health, program = Health(False, problem=problem), host.programs.get(adapter.name, "")
    return AgentReport(adapter.name, host.name, program, health, adapter.capabilities, reached)


def logins(report: AgentReport) -> list[str]:
    """Describe the credentials of an agent in words."""
    credentials = report.credentials
    groups = {
        "credentials in the worker's environment": credentials.forwarded,
        f"credentials in the environment of {report.host}": credentials.there,
        f"not forwarded, as {report.host}'s env does not list them": credentials.withheld,
    }
    said = [f"{where}: {', '.join(names)}" for where, names in groups.items() if names]
    if credentials.known and not credentials.found:
        said.append("logged in" if report.logged_in else _NO_CREDENTIALS)
    return said


async def _is_barred_root(host: TurnHost, variable: str, environ: Mapping[str, str]) -> bool:
    """Return True if agents run as root on the host, without the variable that would let them."""
    if variable in host.forward_env and variable in environ:
        return False
    there, user = await asyncio.gather(environment_names(host.host), probe(host.host, ("id", "-u")))
    return user.stdout.strip() == b"0" and variable not in there


def _credentials(
    host: TurnHost, adapter: Adapter, environ: Mapping[str, str], there: Collection[str]
) -> Credentials:
    own = adapter.credentials(environ)
    asked = {*host.forward_env, *(own if host.forward_credentials else ())}
    forwarded = {name: environ[name] for name in asked if name in environ}
    names = adapter.credentials({**dict.fromkeys(there, "set there"), **forwarded})
    return Credentials(
        forwarded=tuple(name for name in names if name in forwarded),
        there=tuple(name for name in names if name in there and name not in forwarded),
        withheld=tuple(name for name in own if name in environ and name not in forwarded),
        known=bool(names),
    )

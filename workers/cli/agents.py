"""The command `agents`: the agents on each host."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from typing import Any

import click

from adapters.errors import InvalidRequest
from ops.settings import secret_files
from ops.settings.state_dir import StateDir
from remote.daemon_threads import DaemonExecutor
from remote.errors import HostError
from workers.agents.probe import AgentReport, logins, look_closely, look_safely
from workers.cli.context import Context, pass_context
from workers.cli.options import json_option
from workers.cli.output import print_json, print_mark, printable
from workers.doctor.host_checks import isolation
from workers.hosts.from_settings import configured_hosts
from workers.hosts.inventory import Hosts, TurnHost

_CLOSE_S = 3.0


@click.command()
@click.option("--host", metavar="NAME", help="Show only this host.")
@json_option
@pass_context
def agents(context: Context, host: str | None, as_json: bool) -> int:
    """Show the agents on each host.

    Lists programs, versions, logins, billing and capabilities, and how each host isolates agents. Problems with an
    agent are part of the output and do not change the exit status.
    """
    os.environ.update(secret_files.variables(os.environ))
    logging.getLogger("remote").addHandler(logging.NullHandler())  # the reports show these errors
    registry = context.registry
    hosts = configured_hosts(context.settings, StateDir(context.settings.state_dir))
    chosen = [each for each in hosts if host in (None, each.name)]
    if not chosen:
        known = ", ".join(sorted(each.name for each in hosts))
        raise InvalidRequest(f"there is no host {host!r}; known: {known}", field="host")
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(DaemonExecutor())  # a hanging thread must not delay the exit
        reports, isolations = runner.run(_look(context, chosen))
    if as_json:
        failed = [{"agent": each.name, "source": each.source, "reason": each.reason} for each in registry.failed]
        found = [_document(report, registry.sources.get(report.agent)) for report in reports]
        print_json({"agents": found, "failed": failed, "isolation": isolations})
        return 0
    for place in chosen:
        click.echo(printable(f"host {place.name}"))
        click.echo(printable(f"  isolation: {isolations[place.name]}"))
        for report in reports:
            if report.host == place.name:
                _print(report)
    for failed_agent in registry.failed:
        click.secho("✗", fg="red", nl=False)
        click.echo(
            printable(f" {failed_agent.name} from {failed_agent.source} failed to load: {failed_agent.reason}")
        )
    return 0


async def _look(context: Context, hosts: Iterable[TurnHost]) -> tuple[list[AgentReport], dict[str, str]]:
    """Return a report on each agent on each host, and how agents are isolated, by host."""
    places = list(hosts)
    adapters = sorted(context.registry, key=lambda adapter: adapter.name)
    try:
        isolations = asyncio.gather(*map(_isolation, places))
        reports = await asyncio.gather(
            *(
                look_safely(place, adapter, os.environ, context.settings, look_closely)
                for place in places
                for adapter in adapters
            )
        )
        return reports, {place.name: told for place, told in zip(places, await isolations, strict=True)}
    finally:
        closing = asyncio.ensure_future(Hosts(places).close())
        await asyncio.wait({closing}, timeout=_CLOSE_S)


async def _isolation(host: TurnHost) -> str:
    try:
        return (await isolation(host)).detail
    except HostError as fault:
        return f"unknown: {fault.message}"


def _document(report: AgentReport, source: str | None) -> dict[str, Any]:
    health, can, credentials = report.health, report.capabilities, report.credentials
    return {
        "agent": report.agent,
        "source": source,
        "host": report.host,
        "healthy": report.usable,
        "version": health.version,
        "problem": report.problem,
        "version_standing": report.verdict.standing,
        "warning": None if report.verdict.refused else report.verdict.words,
        "path": report.path,
        "credentials": {
            "forwarded": credentials.forwarded,
            "on_host": credentials.there,
            "withheld": credentials.withheld,
        },
        "billing": list(report.billing),
        "capabilities": {
            **{name: getattr(can, name) for name in _ABILITIES},
            "max_context_tokens": can.max_context_tokens,
            "task_types": sorted(can.task_types),
            "languages": sorted(can.languages),
            "proved_versions": can.versions.proved if can.versions is not None else (),
        },
    }


_ABILITIES = ("resume", "structured_output", "cost_cap", "live_output_tokens", "live", "plans")


def _print(report: AgentReport) -> None:
    health, words = report.health, report.verdict.words
    print_mark(ok=report.usable, warning=words is not None)
    found = [f"version {health.version}" if health.version else "usable", report.path or "", words or ""]
    said = "; ".join(part for part in found if part) if report.usable else report.problem
    click.echo(printable(f" {report.agent:<17} {said}"))
    if report.usable:
        lines = [*logins(report), f"billed: {report.billing[0]}" if report.billing else ""]
        abilities = [name for name in _ABILITIES if getattr(report.capabilities, name)]
        lines.append(f"can: {', '.join(abilities)}" if abilities else "")
        for line in lines:
            if line:
                click.echo(printable(f"    {line}"))

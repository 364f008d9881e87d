"""Doctor's check of an agent on a host."""

from __future__ import annotations

from workers.agents.probe import AgentReport, logins
from workers.doctor.check import Check
from workers.hosts.inventory import TurnHost


def checked(report: AgentReport, host: TurnHost, needed: bool) -> Check:
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
    detail = "; ".join([found, *([words] if words else []), *logins(report)])
    return Check(name, True, detail, warning=words is not None)


def _setting(host: TurnHost, report: AgentReport) -> str:
    if host.launcher != "local":
        return f"set agents or path of {host.name} in ssh_hosts"
    return f"set RUNTURN_AGENT__COMMAND, or command in the table {report.agent}"

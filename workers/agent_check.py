"""Whether an agent can be used on a host: its program, its version, and what it logs in with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from adapters.contract import Adapter, Exit
from remote.upkeep import environment_names, probe
from workers.check import Check
from workers.hosts import TurnHost

_PROBE_S = 8.0


async def agent(host: TurnHost, adapter: Adapter, environ: Mapping[str, str], needed: bool) -> Check:
    """Look at an agent on a host. Only one that is needed has to be there. `environ` is the worker's.

    Raises HostError.
    """
    name, argv = f"agent {adapter.name}", host.program(adapter.name, adapter.probe())
    there = await environment_names(host.host)
    output = await probe(host.host, argv, _PROBE_S)
    end = Exit(output.exit, output.stderr.decode(errors="replace"))
    health = adapter.health(end, output.stdout.decode(errors="replace"))
    if not health.healthy:
        detail = f"{argv[0]} is not usable" + ("" if needed else "; only turns that ask for it need it")
        return Check(name, not needed, detail, f"{health.problem}; if it lies elsewhere, {_setting(host)}")
    found = f"version {health.version}" if health.version else "usable"
    return Check(name, True, "; ".join([found, *_credentials(host, adapter, environ, there)]))


def _setting(host: TurnHost) -> str:
    local = host.launcher == "local"
    return "set RUNTURN_AGENT__COMMAND" if local else f"set agents or path of {host.name} in ssh_hosts"


def _credentials(
    host: TurnHost, adapter: Adapter, environ: Mapping[str, str], there: Collection[str]
) -> Iterator[str]:
    """Names of the variables that it logs in with, by where they come from. Never a value."""
    own = adapter.credentials(environ)
    asked = {*host.forward_env, *(own if host.forward_credentials else ())}
    forwarded = {name: environ[name] for name in asked if name in environ}
    names = adapter.credentials({**dict.fromkeys(there, "set there"), **forwarded})
    found = [name for name in names if name in forwarded or name in there]
    groups = {
        "credentials in the worker's environment": [name for name in found if name in forwarded],
        f"credentials in the environment of {host.name}": [name for name in found if name not in forwarded],
        f"not forwarded, since env of {host.name} does not name them": [
            name for name in own if name in environ and name not in forwarded
        ],
    }
    yield from (f"{where}: {', '.join(variables)}" for where, variables in groups.items() if variables)
    if names and not found:
        yield "no credentials in its environment, so it needs a login of its own"

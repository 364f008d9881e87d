"""A real worker, and an agent whose version changes under it, on its own machine and over SSH."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status, TurnResult
from tests.docs.pages import ROOT
from tests.integration.turns.test_custom_adapter import TINKER, documented, package
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.pages import scrape
from tests.support.ssh.ssh_host import ssh_host, ssh_hosts
from tests.support.waiting import until

OLD, NEW = "0.9", "1.1"
ELDER = """
from dataclasses import replace

from adapters.versions import Unsupported, Versions
from runturn_tinker import Tinker

LOSES_ITS_END = Unsupported("it loses its end", mended="1.0")
KNOWN = Versions(proved=("1.1",), covers=("success",), unsupported=(LOSES_ITS_END,))


class Elder(Tinker):
    name = "elder"
    capabilities = replace(Tinker.capabilities, versions=KNOWN)


def create(config):
    return Elder(config)
"""
# Its version is what stands in a file beside it; every other start is counted.
COUNTED = """#!/bin/sh
[ "$1" = --version ] && exec cat "$0.version"
echo started >>"$0.starts"
"""
HOSTS = ("local", "h1")
_SOON_S = 60.0  # a refused version is looked at again after 30 s


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet with one worker, and the agent's program on each of its hosts."""

    fleet: Fleet
    worker: Worker
    programs: dict[str, Path]

    def install(self, version: str) -> None:
        """Install a version everywhere."""
        for program in self.programs.values():
            Path(f"{program}.version").write_text(f"elder {version}\n")

    def run(self, host: str, **fields: Any) -> TurnResult:
        """A turn there."""
        return self.fleet.run(self.fleet.request(host=host, **{"agent": "elder", **fields}))

    def starts(self, host: str) -> int:
        """How often the program was started there, but for looks at its version."""
        file = Path(f"{self.programs[host]}.starts")
        return len(file.read_text().splitlines()) if file.exists() else 0

    def seen(self, host: str, version: str, standing: str) -> float | None:
        """The metric."""
        labels = {"agent": "elder", "host": host, "version": version, "standing": standing}
        return scrape(self.worker.metrics).get(("runturn_agent_info", tuple(sorted(labels.items()))))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("versions")
    entries, module = documented()
    package(root / "lib", "runturn-tinker", entries, runturn_tinker=module)
    package(root / "lib", "runturn-elder", {"elder": "elder:create", "kept": "elder:kept"}, elder=ELDER + KEPT)
    text = COUNTED + TINKER.partition("\n")[2]
    with ssh_host("h1", root) as login:
        programs = {"h1": login.program("elder", text), "local": root / "elder"}
        programs["local"].write_text(text)
        programs["local"].chmod(0o755)
        there = login.setting(agents={name: str(programs["h1"]) for name in ("elder", "kept")})
        tables = {"command": str(programs["local"])}
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(root), "PYTHONPATH": f"{root / 'lib'}:{ROOT}",
            "TINKER_KEY": "sk-tinker-0123456789",
        }  # fmt: skip
        agents = json.dumps({"elder": tables, "kept": {**tables, "allow_versions": [OLD]}})
        with Fleet(root, environment, agent__kind="elder", agents=agents, ssh_hosts=ssh_hosts(there)) as fleet:
            place = Place(fleet, fleet.start_worker(), programs)
            place.install(OLD)
            yield place


# The same agent by another name, whose table allows the old version.
KEPT = """

class Kept(Elder):
    name = "kept"


def kept(config):
    return Kept(config)
"""


@pytest.mark.parametrize("host", HOSTS)
def test_refused_version_spends_nothing_and_says_what_to_do(place: Place, host: str) -> None:
    result = place.run(host)
    assert result.error is not None
    assert (result.status, result.error.kind, result.attempts) == (Status.FAILED, "agent_version_unsupported", 0)
    assert f"agent elder on {host}: version 0.9 is known not to work: it loses its end" in result.error.message
    assert f"install a tested version (1.1) on {host}" in result.error.message
    assert 'allow_versions = ["0.9"] in the table elder' in result.error.message
    assert result.usage_source == "none"
    assert place.starts(host) == 0
    assert place.seen(host, OLD, "unsupported") == 1


def test_agents_and_doctor_tell_it_before_any_turn_does(place: Place) -> None:
    found = json.loads(place.fleet.command("agents", "--json", cwd=ROOT).stdout)["agents"]
    agents = {(agent["agent"], agent["host"]): agent for agent in found}
    for host in HOSTS:
        elder, kept = agents["elder", host], agents["kept", host]
        assert (elder["healthy"], elder["version"], elder["version_standing"]) == (False, OLD, "unsupported")
        assert "it loses its end; install a tested version (1.1)" in elder["problem"]
        assert (kept["healthy"], kept["version_standing"]) == (True, "allowed")
        assert "known not to work: it loses its end" in kept["warning"]
    said = place.fleet.command("doctor", "--host", "h1", cwd=ROOT)
    assert said.returncode == 1
    assert "✗ agent elder       version 0.9 is known not to work: it loses its end\n" in said.stdout
    assert "→ install a tested version (1.1) on h1, or allow this one: allow_" in said.stdout
    assert "! agent kept        version 0.9; 0.9 is allowed by allow_versions" in said.stdout


@pytest.mark.parametrize("host", HOSTS)
def test_version_that_the_operator_allows_runs(place: Place, host: str) -> None:
    result = place.run(host, agent="kept")
    assert (result.status, result.agent_version, result.host) == (Status.COMPLETED, OLD, host)


def test_turns_run_after_an_upgrade_without_a_restart_and_tell_their_version(place: Place) -> None:
    before = {host: place.starts(host) for host in HOSTS}
    place.install(NEW)
    for host in HOSTS:
        result = until(lambda host=host: _completed(place.run(host)), f"a turn on {host}", _SOON_S)
        assert (result.attempts, result.agent_version, place.starts(host)) == (1, NEW, before[host] + 1)
        began = place.fleet.events(result.turn_id)[0]
        assert (began["event"], began["agent_version"]) == ("attempt_started", NEW)
        history = json.loads(place.fleet.command("history", "--json", "--limit", "1", cwd=ROOT).stdout)
        assert [(row["turn_id"], row["agent_version"]) for row in history] == [(result.turn_id, NEW)]
        assert (place.seen(host, NEW, "proved"), place.seen(host, OLD, "unsupported")) == (1, None)


def _completed(result: TurnResult) -> TurnResult | None:
    return result if result.status is Status.COMPLETED else None

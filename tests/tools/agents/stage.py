"""Where one version plays its scenes: a fleet with real workers, the scripted API, and the agent from npm."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.processes import describe, of_turn
from tests.support.waiting import until
from tests.tools.agents.actors import ACTORS, Actor, key
from tests.tools.agents.scenes import Scene
from tests.tools.agents.versions import PROGRAMS, Version, installed

_LONG_S = 240.0
_GONE_S = 30.0
# Tells the API which scene is calling.
_PROGRAM = """#!/bin/sh
if [ -e key ] && [ "${{{credential}:-}}" ]; then {credential}=$(cat key); fi
exec {command} "$@"
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """One version with all that its scenes need."""

    version: Version
    root: Path
    fleet: Fleet
    actor: Actor

    def enqueue(self, scene: Scene, script: str | None = None, **fields: Any) -> str:
        """Ask for one of the scene's turns, that of the script, else its only one."""
        script, workspace = script or scene, self.workspace(scene)
        (workspace / "key").write_text(key(script))
        document = {
            "prompt": f"do it [script:{script}]",
            "workspace": str(workspace),
            "agent": self.version.agent,
            "options": {**self.actor.options, **self.actor.parts(scene)[script].options},
        }
        return self.fleet.client.enqueue(TurnRequest.parse({**document, **fields}))

    def start_worker(self) -> Worker:
        """A worker that is ready; on a machine this busy it may take minutes."""
        with suppress(AssertionError):
            return self.fleet.start_worker()
        until(lambda: b"worker is ready" in self.fleet.workers[-1].log.read_bytes(), "a worker", _LONG_S)
        return self.fleet.workers[-1]

    def workspace(self, scene: Scene) -> Path:
        """The scene's own."""
        folder = self.root / "workspaces" / scene
        furnish(folder, self.actor, scene)
        return folder

    def result(self, turn_id: str) -> TurnResult:
        """Wait for it: everything shares two cores."""
        return self.fleet.client.result(turn_id, _LONG_S)

    def wait_until_under_way(self, turn_id: str, scene: Scene) -> None:
        """Until its tool runs, or the turn has ended without."""
        mark = self.workspace(scene) / "under-way"
        until(lambda: mark.exists() or self._ended(turn_id), f"the tool of {scene}", _LONG_S)

    def kill_in_mid_answer(self, turn_id: str, scene: Scene) -> None:
        """Kill the agent when the API holds back the rest of an answer, and let the API go on."""
        until(lambda: self._is_answering(scene) or self._ended(turn_id), f"half an answer in {scene}", _LONG_S)
        self.kill_agent(turn_id)
        self.actor.api.gate(scene).release()

    def kill_amid_a_tool(self, turn_id: str, scene: Scene) -> None:
        """Kill the agent when its tool runs; each turn of a scene has one."""
        self.wait_until_under_way(turn_id, scene)
        self.kill_agent(turn_id)
        (self.workspace(scene) / "under-way").unlink(missing_ok=True)

    def kill_agent(self, turn_id: str) -> None:
        """As the kernel does when memory is short, in the first attempt."""
        if not self._ended(turn_id):
            pid, *_ = (self.fleet.state.spool / f"{turn_id}.1" / "agent").read_text().split()
            psutil.Process(int(pid)).kill()

    def left(self, results: Sequence[TurnResult]) -> list[str]:
        """Return what is left of these turns after a while: processes, spools."""
        spools = [
            self.fleet.state.spool / f"{told.turn_id}.{n + 1}" for told in results for n in range(told.attempts)
        ]
        try:
            until(lambda: not any(spool.exists() or of_turn(spool) for spool in spools), "their end", _GONE_S)
        except AssertionError:
            return [describe(of_turn(spool)) or "a spool" for spool in spools if spool.exists() or of_turn(spool)]
        return []

    def _is_answering(self, scene: Scene) -> bool:
        """Whether an answer was begun and waits at the gate, the scene's second."""
        bill = self.actor.api.bills().get(scene)
        begun = [line for line in bill.requests if line.list_name == "main" and line.usage.input] if bill else []
        return len(begun) > 1 and begun[1].open

    def _ended(self, turn_id: str) -> bool:
        return self.fleet.ledger.reports.result(turn_id) is not None


@contextmanager
def open_stage(version: Version) -> Iterator[Stage]:
    """A fleet for one version, without a worker yet."""
    command = installed(version)
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="rt-agents-", ignore_cleanup_errors=True)
        root = Path(stack.enter_context(folder))
        home = root / "home"
        home.mkdir()
        actor = stack.enter_context(ACTORS[version.agent](home))
        programs = _wrap(root, PROGRAMS[version.agent], command, actor.credential)
        environment = {**actor.environment, "PATH": f"{programs}:{actor.environment['PATH']}"}
        # Two cores are shared: five seconds are too short for an agent's own last word.
        fleet = stack.enter_context(Fleet(root, environment, agent__stop_grace_ms="20000"))
        yield Stage(version, root, fleet, actor)


def furnish(workspace: Path, actor: Actor, scene: Scene) -> None:
    """Make the scene's workspace."""
    workspace.mkdir(parents=True, exist_ok=True)
    for name, text in actor.settings.items() if scene in actor.beside else ():
        path = workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _wrap(root: Path, name: str, command: Sequence[str], credential: str) -> Path:
    """Install the program under the name that its adapter looks up."""
    programs = root / "bin"
    programs.mkdir()
    program = programs / name
    program.write_text(_PROGRAM.format(command=shlex.join(command), credential=credential))
    program.chmod(0o755)
    return programs

"""One version plays its scenes: a fleet with real workers, the scripted API, and the agent from npm."""

from __future__ import annotations

import shlex
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from adapters.request import TurnRequest
from adapters.result import TurnResult
from tests.agents.actors import ACTORS, Actor, key
from tests.agents.cells import Cell
from tests.agents.played import Played, cell
from tests.agents.scenes import FIRST, SCHEMA, Scene
from tests.agents.versions import PROGRAMS, Version, installed
from tests.processes import describe, of_turn
from tests.waiting import until
from tests.workers.fleet import Fleet

_AT_ONCE = 2  # scenes of one version: an agent is a few hundred megabytes, and two cores are soon full
_LONG_S = 240.0
_GONE_S = 30.0
# Keeps what the agent prints, whose spool is removed with the turn, and tells the API which scene is calling.
_PROGRAM = """#!/bin/sh
if [ "${{RUNTURN_SPOOL:-}}" ]; then
    ln "$RUNTURN_SPOOL/events" {kept}/"${{RUNTURN_SPOOL##*/}}.out"
    ln "$RUNTURN_SPOOL/err" {kept}/"${{RUNTURN_SPOOL##*/}}.err"
fi
if [ -e key ] && [ "${{ANTHROPIC_API_KEY:-}}" ]; then ANTHROPIC_API_KEY=$(cat key); fi
exec {command} "$@"
"""


@dataclass
class Stage:
    """Where the scenes of one version are played."""

    version: Version
    root: Path
    fleet: Fleet
    actor: Actor

    def play(self, scenes: Sequence[Scene]) -> Iterator[Cell]:
        """Play the scenes, and yield each cell when its scene has ended."""
        worker = self.fleet.start_worker()
        begun = self._begin_with(worker.kill) if Scene.KILL_WORKER in scenes else None
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            others = [pool.submit(self._play, scene) for scene in scenes if scene is not Scene.KILL_WORKER]
            if begun is not None:
                yield self._cell(Scene.KILL_WORKER, [self.fleet.client.result(begun, _LONG_S)])
            for future in others:
                yield future.result()

    def _begin_with(self, kill_worker: Any) -> str:
        """A turn whose worker is killed in the middle of a tool; the next one is there."""
        turn_id = self._enqueue(Scene.KILL_WORKER)
        workspace = self._workspace(Scene.KILL_WORKER)
        self._until_under_way(turn_id, workspace)
        kill_worker()
        self.fleet.start_worker()
        (workspace / "go-on").touch()
        return turn_id

    def _play(self, scene: Scene) -> Cell:
        match scene:
            case Scene.RESUME:
                first = self._result(self._enqueue(scene, script=FIRST))
                results = [first]
                if first.session_id is not None:
                    results.append(self._result(self._enqueue(scene, session_id=first.session_id)))
                return self._cell(scene, results)
            case Scene.CANCEL:
                turn_id = self._enqueue(scene)
                self._until_under_way(turn_id, self._workspace(scene))
                self.fleet.client.cancel(turn_id)
            case Scene.KILL_AGENT:
                turn_id = self._enqueue(scene)
                self.actor.api.gate(scene).wait_until_reached(_LONG_S)
                self._kill_agent(turn_id)
                self.actor.api.gate(scene).release()
            case Scene.SCHEMA:
                turn_id = self._enqueue(scene, output_schema=SCHEMA)
            case _:
                turn_id = self._enqueue(scene)
        return self._cell(scene, [self._result(turn_id)])

    def _enqueue(self, scene: Scene, script: str | None = None, **fields: Any) -> str:
        script, workspace = script or scene, self._workspace(scene)
        (workspace / "key").write_text(key(script))
        document = {
            "prompt": f"do it [script:{script}]",
            "workspace": str(workspace),
            "agent": self.version.agent,
            "options": self.actor.options,
        }
        return self.fleet.client.enqueue(TurnRequest.parse({**document, **fields}))

    def _workspace(self, scene: Scene) -> Path:
        folder = self.root / "workspaces" / scene
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _result(self, turn_id: str) -> TurnResult:
        return self.fleet.client.result(turn_id, _LONG_S)

    def _until_under_way(self, turn_id: str, workspace: Path) -> None:
        """Until its tool runs, or the turn has ended without."""
        until(
            lambda: (workspace / "under-way").exists() or self.fleet.ledger.result(turn_id) is not None,
            f"the tool of {turn_id} of {self.version}",
            _LONG_S,
        )

    def _kill_agent(self, turn_id: str) -> None:
        pid, *_ = (self.fleet.state.spool / f"{turn_id}.1" / "agent").read_text().split()
        psutil.Process(int(pid)).send_signal(signal.SIGKILL)

    def _cell(self, scene: Scene, results: list[TurnResult]) -> Cell:
        scripts = [FIRST, scene] if scene is Scene.RESUME else [scene]
        bills = [self.actor.api.wait_until_idle(script) for script in scripts]
        left = [what for result in results for what in self._left(result)]
        return cell(self.version, scene, Played(results, bills, left))

    def _left(self, result: TurnResult) -> list[str]:
        spools = [self.fleet.state.spool / f"{result.turn_id}.{n + 1}" for n in range(result.attempts)]
        try:
            until(lambda: not any(spool.exists() or of_turn(spool) for spool in spools), "its end", _GONE_S)
        except AssertionError:
            processes = [process for spool in spools for process in of_turn(spool)]
            return [describe(processes) or "a spool"]
        return []


@contextmanager
def stage(version: Version) -> Iterator[Stage]:
    """A fleet for one version, without a worker yet."""
    command = installed(version)
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rt-agents-", ignore_cleanup_errors=True)))
        home = root / "home"
        home.mkdir()
        actor = stack.enter_context(ACTORS[version.agent](home))
        programs = _wrap(root, PROGRAMS[version.agent], command)
        environment = {**actor.environment, "PATH": f"{programs}:{actor.environment['PATH']}"}
        fleet = stack.enter_context(Fleet(root, environment, agent__stop_grace_ms="20000"))
        yield Stage(version, root, fleet, actor)


def _wrap(root: Path, name: str, command: Sequence[str]) -> Path:
    programs, kept = root / "bin", root / "kept"
    programs.mkdir()
    kept.mkdir()
    program = programs / name
    program.write_text(_PROGRAM.format(kept=shlex.quote(str(kept)), command=shlex.join(command)))
    program.chmod(0o755)
    return programs

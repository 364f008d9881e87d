"""One fleet on which all agents play all scenes on all launchers at once."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

from adapters.isolation import Isolation
from adapters.protocol.result import TurnResult
from tests.integration.contract.actors import AGENTS, cast
from tests.integration.contract.codex import Codex
from tests.integration.contract.replay import Replay
from tests.integration.contract.scenes import GARBAGE, Actor, Scene, Turn
from tests.support.fleets.fleet import Fleet
from tests.support.ssh.ssh_host import assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import until

HOSTS = ("local", "over-ssh")
# What becomes of lines, or of none, differs over SSH for no agent: one that runs and one that replays show it.
_SHOWN_BY: Final = frozenset({Codex.agent, Replay.agent})
_SHOWN: Final = frozenset({Scene.FAILURE, Scene.STALL, Scene.GARBAGE, Scene.HUGE})
# Isolation is the same over SSH, and matters where a turn is to end, or goes on without a worker.
_WALLED: Final = frozenset({Scene.SUCCESS, Scene.CANCEL, Scene.KILL})
_EVERY_LEVEL = os.environ.get("LEVELS") == "all"
_OWN = frozenset({"PATH", "HOME"})  # of the worker's machine: hosts have theirs
# As the real programs do, in the workspace of that scene, when something of their surroundings prints.
_PROGRAM = """#!/bin/sh
if [ -e garbage ]; then cat garbage; fi
exec '{program}' "$@"
"""
_LONG_S = 240.0


def scenes(agent: str, host: str, level: Isolation) -> list[Scene]:
    """What an agent plays on a host at a level of isolation; with LEVELS=all, everything."""
    if level is not Isolation.NONE and not _EVERY_LEVEL:
        shown = host == HOSTS[0] and (level is Isolation.SANDBOX or agent in _SHOWN_BY)
        return [scene for scene in Scene if shown and scene in _WALLED]
    every = _EVERY_LEVEL or host == HOSTS[0] or agent in _SHOWN_BY
    return [scene for scene in Scene if every or scene not in _SHOWN]


@dataclass
class Stage:
    """What was played."""

    fleet: Fleet
    login: Login
    actors: dict[str, Actor]
    turns: dict[tuple[str, str, Isolation, Scene], Turn]

    def result(self, turn: Turn) -> TurnResult:
        """Wait for it: all of them share two cores."""
        return self.fleet.client.result(turn.id, _LONG_S)

    def play(self) -> None:
        """Have all turns run, those of the killed worker first."""
        worker = self.fleet.start_worker()
        killed = self._begin_to_be_killed(real=True)
        killed += self._begin_to_be_killed(real=False)  # which do not wait for the others
        worker.kill()
        self.fleet.start_worker()
        for turn in killed:
            (turn.workspace / "go-on").touch()
        cancelled = self._begin(Scene.CANCEL)
        self._begin(*(scene for scene in Scene if scene not in (Scene.KILL, Scene.CANCEL)))
        for turn in cancelled:
            until(lambda turn=turn: self._under_way(turn), f"the tool of {turn.script}", _LONG_S)
            self.fleet.client.cancel(turn.id)

    def assert_nothing_left(self) -> None:
        """Of no turn is anything left anywhere."""
        self.fleet.assert_nothing_left()
        assert_nothing_left(self.login)

    def _begin_to_be_killed(self, *, real: bool) -> list[Turn]:
        agents = [name for name, actor in self.actors.items() if (actor.program is not None) is real]
        begun = self._begin(Scene.KILL, agents=agents)
        until(lambda: all(map(self._under_way, begun)), "turns with a slow tool", _LONG_S)
        return begun

    def _begin(self, *scenes: Scene, agents: Sequence[str] = AGENTS) -> list[Turn]:
        begun = []
        for key, turn in self.turns.items():
            if turn.scene in scenes and turn.agent in agents:
                request = turn.request(self.fleet, **self.actors[turn.agent].fields(turn))
                self.turns[key] = replace(turn, id=self.fleet.client.enqueue(request))
                begun.append(self.turns[key])
        return begun

    def _under_way(self, turn: Turn) -> bool:
        result = self.fleet.ledger.reports.result(turn.id)
        assert result is None, f"{turn.script} has ended: {result.error}"
        used_tool = any(event["event"] == "tool_started" for event in self.fleet.events(turn.id))
        return used_tool and (self.actors[turn.agent].program is None or (turn.workspace / "under-way").exists())


@contextmanager
def open_stage(root: Path, agents: Sequence[str] = AGENTS) -> Iterator[Stage]:
    """A stage on which everything has been set going."""
    turns = {
        (agent, host, level, scene): Turn(
            agent, host, level, scene, _workspace(root, f"{agent}-{host}-{level}-{scene}", scene)
        )
        for agent, host, level in product(agents, HOSTS, Isolation)
        for scene in scenes(agent, host, level)
    }
    with ExitStack() as stack:
        actors = stack.enter_context(cast(root, list(turns.values())))
        login = stack.enter_context(ssh_host(HOSTS[1], root))
        programs = _install(root / "bin", actors.values())
        environment = {name: value for actor in actors.values() for name, value in actor.environment.items()}
        # What the programs in `bin` start, and that they are started with.
        shown = [
            sys.prefix,
            sys.base_prefix,
            *(str(Path(actor.program[1]).parent.parent) for actor in actors.values() if actor.program),
        ]
        setting = login.setting(
            env=sorted(environment.keys() - _OWN),
            path=[str(programs)],
            agents={},
            isolation=Isolation.NONE,
            sandbox_paths=shown,
        )
        # All that are to lose their worker run at once, and wait for it.
        at_once = Counter(turn.host for turn in turns.values() if turn.scene is Scene.KILL)
        setting["max_concurrent_agents"] = max(2 * len(agents), at_once[HOSTS[1]])
        variables = {**environment, "PATH": f"{programs}:{environment['PATH']}"}
        fleet = stack.enter_context(
            Fleet(
                root,
                variables,
                ssh_hosts=ssh_hosts(setting),
                isolation=Isolation.NONE,
                sandbox_paths=json.dumps(shown),
            )
        )
        # On a machine this busy, five seconds are too short for an agent's own last word.
        fleet.environment["RUNTURN_AGENT__STOP_GRACE_MS"] = "30000"
        fleet.environment["RUNTURN_AGENT__MAX_CONCURRENT_AGENTS"] = str(max(3 * len(agents), at_once.total()))
        stage = Stage(fleet, login, actors, turns)
        stage.play()
        yield stage


def _workspace(root: Path, name: str, scene: Scene) -> Path:
    folder = root / "workspaces" / name
    folder.mkdir(parents=True)
    if scene is Scene.GARBAGE:
        (folder / "garbage").write_bytes(GARBAGE.encode() + b"\xff\xfe\n")
    return folder


def _install(folder: Path, actors: Sequence[Actor] | Iterator[Actor]) -> Path:
    folder.mkdir()
    for name, program in {actor.program for actor in actors if actor.program}:
        path = folder / name
        path.write_text(_PROGRAM.format(program=program))
        path.chmod(0o755)
    return folder

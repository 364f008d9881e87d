"""How each scene is played: what is asked for, and what happens to it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from adapters.protocol.result import TurnResult
from tests.tools.agents.cells import Cell, broken
from tests.tools.agents.played import Played, cell
from tests.tools.agents.scenes import SCHEMA, Scene
from tests.tools.agents.stage import Stage

_AT_ONCE = 2  # scenes of one version: an agent is a few hundred megabytes, and two cores are soon full


def play(stage: Stage, scenes: Sequence[Scene]) -> Iterator[Cell]:
    """Play the scenes, and yield each cell when its scene has ended."""
    killed = Scene.KILL_WORKER in scenes
    try:
        # Alone until its worker is killed: that is not to happen to the others.
        begun = _leave_to_the_next_worker(stage) if killed else ""
    except AssertionError as error:
        killed = False
        yield broken(stage.version.agent, stage.version.number, Scene.KILL_WORKER, str(error))
    stage.start_worker()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = [pool.submit(_played, stage, scene) for scene in scenes if scene is not Scene.KILL_WORKER]
        if killed:
            running.append(pool.submit(_guarded, stage, Scene.KILL_WORKER, lambda _: [stage.result(begun)]))
        for future in as_completed(running):
            yield future.result()


def _leave_to_the_next_worker(stage: Stage) -> str:
    worker = stage.start_worker()
    turn_id = stage.enqueue(Scene.KILL_WORKER)
    stage.wait_until_under_way(turn_id, Scene.KILL_WORKER)
    worker.kill()
    (stage.workspace(Scene.KILL_WORKER) / "go-on").touch()
    return turn_id


def _played(stage: Stage, scene: Scene) -> Cell:
    return _guarded(stage, scene, _PLAYS.get(scene, partial(_parts, scene=scene)))


def _guarded(stage: Stage, scene: Scene, run: Callable[[Stage], list[TurnResult]]) -> Cell:
    """Run one scene; one that hangs is a cell, too."""
    try:
        results = run(stage)
        bills = {script: stage.actor.api.wait_until_idle(script) for script in stage.actor.parts(scene)}
    except (AssertionError, TimeoutError) as error:
        return broken(stage.version.agent, stage.version.number, scene, f"{type(error).__name__}: {error}")
    return cell(stage.version, scene, Played(results, bills, stage.left(results)))


def _parts(stage: Stage, scene: Scene) -> list[TurnResult]:
    results: list[TurnResult] = []
    for script, part in stage.actor.parts(scene).items():
        if part.goes_on and (results[-1].error is not None or results[-1].session_id is None):
            break
        session = {"session_id": results[-1].session_id} if part.goes_on else {}
        turn_id = stage.enqueue(scene, script=script, **session)
        if scene is Scene.KILL_BESIDE and not part.opens:
            stage.kill_amid_a_tool(turn_id, scene)
        results.append(stage.result(turn_id))
    return results


def _schema(stage: Stage) -> list[TurnResult]:
    return [stage.result(stage.enqueue(Scene.SCHEMA, output_schema=SCHEMA))]


def _cancel(stage: Stage) -> list[TurnResult]:
    turn_id = stage.enqueue(Scene.CANCEL)
    stage.wait_until_under_way(turn_id, Scene.CANCEL)
    stage.fleet.client.cancel(turn_id)
    return [stage.result(turn_id)]


def _kill_agent(stage: Stage) -> list[TurnResult]:
    turn_id = stage.enqueue(Scene.KILL_AGENT)
    stage.kill_in_mid_answer(turn_id, Scene.KILL_AGENT)
    return [stage.result(turn_id)]


_PLAYS: dict[Scene, Callable[[Stage], list[TurnResult]]] = {
    Scene.SCHEMA: _schema,
    Scene.CANCEL: _cancel,
    Scene.KILL_AGENT: _kill_agent,
}

"""Every agent, on this machine and over a real sshd: each ends as it has to, and is booked as it was billed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from adapters.isolation import Isolation
from adapters.protocol.result import Status, TurnResult
from tests.integration.contract.actors import AGENTS
from tests.integration.contract.scenes import HUGE_TEXT, Bill, Scene, Turn
from tests.integration.contract.stage import HOSTS, Stage, open_stage, scenes

pytestmark = pytest.mark.timeout(600)  # for the first test, which waits for the stage
PLACES = [place for place in product(AGENTS, HOSTS, Isolation) if scenes(*place)]
EVERYWHERE = pytest.mark.parametrize(("agent", "host", "level"), PLACES)


def where(scene: Scene) -> pytest.MarkDecorator:
    """For every agent and host that play it."""
    return pytest.mark.parametrize(
        ("agent", "host", "level"), [place for place in PLACES if scene in scenes(*place)]
    )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("contract")) as stage:
        yield stage


@where(Scene.SUCCESS)
def test_success_is_reported_with_its_text(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    turn, result = _played(stage, agent, host, level, Scene.SUCCESS)
    assert (result.status, result.attempts, result.host) == (Status.COMPLETED, 1, host), result.error
    assert result.text
    assert {"session_started", "tool_started", "tool_finished"} <= _events(stage, turn)


@where(Scene.FAILURE)
def test_failure_is_reported_with_its_kind(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    _, result = _played(stage, agent, host, level, Scene.FAILURE)
    assert result.error is not None
    assert (result.status, result.error.kind in stage.actors[agent].failures) == (Status.FAILED, True), (
        result.error
    )


@where(Scene.CANCEL)
def test_cancelled_turn_ends_at_once_with_all_its_tools(
    stage: Stage, agent: str, host: str, level: Isolation
) -> None:
    _, result = _played(stage, agent, host, level, Scene.CANCEL)
    assert result.status is Status.CANCELLED, result.error


@where(Scene.STALL)
def test_silent_turn_is_ended(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    _, result = _played(stage, agent, host, level, Scene.STALL)
    assert (result.status, result.error and result.error.kind) == (Status.FAILED, "turn_stalled")


@where(Scene.KILL)
def test_turn_of_a_killed_worker_runs_once(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    turn, result = _played(stage, agent, host, level, Scene.KILL)
    assert (result.status, result.attempts) == (Status.COMPLETED, 1), result.error
    if stage.actors[agent].program:
        assert (turn.workspace / "starts").read_text() == "started\n"


@where(Scene.GARBAGE)
def test_bad_output_is_told_and_does_no_harm(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    turn, result = _played(stage, agent, host, level, Scene.GARBAGE)
    assert (result.status, result.attempts) == (Status.COMPLETED, 1), result.error
    assert "malformed" in _events(stage, turn)


@where(Scene.HUGE)
def test_huge_line_is_read_whole(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    _, result = _played(stage, agent, host, level, Scene.HUGE)
    assert result.status is Status.COMPLETED, result.error
    if stage.actors[agent].program:
        assert result.text.strip() == HUGE_TEXT.strip()


@EVERYWHERE
def test_everything_is_booked_as_it_was_billed(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    for scene in scenes(agent, host, level):
        turn, result = _played(stage, agent, host, level, scene)
        booked, billed = _booked(result), stage.actors[agent].billed(turn)
        if scene in stage.actors[agent].exact:
            assert (booked, result.usage_complete) == (billed, True), scene
        else:
            assert sum(booked.values()) <= sum(billed.values()), scene
            assert booked == billed or not result.usage_complete, scene
        assert stage.fleet.ledger.accounting.usage_of(turn.id)[1].tokens.total == sum(booked.values()), scene


@EVERYWHERE
def test_nothing_is_left(stage: Stage, agent: str, host: str, level: Isolation) -> None:
    for scene in scenes(agent, host, level):
        _played(stage, agent, host, level, scene)
    if (agent, host, level) == PLACES[-1]:  # it waits for all of them
        stage.assert_nothing_left()


def _played(stage: Stage, agent: str, host: str, level: Isolation, scene: Scene) -> tuple[Turn, TurnResult]:
    turn = stage.turns[agent, host, level, scene]
    return turn, stage.result(turn)


def _events(stage: Stage, turn: Turn) -> set[str]:
    return {event["event"] for event in stage.fleet.events(turn.id)}


def _booked(result: TurnResult) -> Bill:
    by_model = result.usage.by_model
    bill = {
        model: used.input_tokens
        + used.output_tokens
        + used.cache_read_input_tokens
        + used.cache_creation_input_tokens
        for model, used in by_model.items()
    }
    return {model: tokens for model, tokens in bill.items() if tokens}

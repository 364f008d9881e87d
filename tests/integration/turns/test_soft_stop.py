"""The real Claude Code asked to end by itself: what was denied never ran, and the bill is what the API charged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adapters.protocol.result import Status, TurnResult
from tests.fakes.model_api import Branch, Hold, ModelApi, Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_bills import ask, billed, booked, in_ledger
from tests.support.fleets.fleet import Fleet
from tests.support.waiting import text_of, until


def spender(name: str) -> Script:
    """Its second answer uses up the budget, and wants two tools once the agent was told to end."""
    return Script(
        name,
        (
            Reply((Text("I begin."), replies.bash(f"touch {name}-a")), Usage(1000, 20, 30, 4)),
            Reply(
                (Text("I go on."), replies.bash(f"touch {name}-b"), replies.bash(f"touch {name}-c")),
                Usage(2000, 21, 31, 5),
                hold=Hold(name, 1),  # what it costs was told
            ),
            Reply((Text("I should not be asked."),), Usage(3000, 22, 32, 6)),
        ),
    )


SCRIPTS = (
    spender("spends"),
    spender("late"),
    spender("orphan"),
    Script(
        "waits",
        (
            Reply((replies.agent("SUBJOB please", background=True),), Usage(100, 24, 34, 8)),
            Reply((Text("I wait."), replies.bash("touch waits-a; sleep 300")), Usage(101, 23, 33, 7)),
        ),
        branches=(
            Branch((Reply((Text("done"),), Usage(5000, 26, 36, 10), hold=Hold("waits")),), prompt="SUBJOB"),
        ),
    ),
    Script(
        "delegates",
        (
            Reply((replies.agent("SUBJOB please"),), Usage(100, 24, 34, 8)),
            Reply((replies.bash("touch delegates-b"),), Usage(101, 25, 35, 9)),
        ),
        branches=(
            Branch(
                (
                    Reply((replies.bash("touch delegates-a"),), Usage(900, 26, 36, 10)),
                    Reply(
                        (replies.bash('until [ -e "$RUNTURN_SPOOL/files/stop" ]; do sleep 0.05; done'),),
                        Usage(902, 28, 38, 12),
                    ),
                    Reply((replies.bash("touch delegates-c"),), Usage(901, 27, 37, 11)),
                ),
                prompt="SUBJOB",
            ),
        ),
    ),
)
DENIED = {"permissionDecision": "deny", "permissionDecisionReason": "Token budget exhausted"}

Place = tuple[Fleet, ModelApi]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One fleet for all of them; the user of the machine has a hook of their own."""
    root = tmp_path_factory.mktemp("soft")
    with claude_fleet(root, *SCRIPTS, agent__soft_stop_ms="12000") as place:
        hook = {"matcher": "*", "hooks": [{"type": "command", "command": "touch looked"}]}
        settings = {"hooks": {"PreToolUse": [hook]}}
        (root / "home" / ".claude").mkdir(exist_ok=True)
        (root / "home" / ".claude" / "settings.json").write_text(json.dumps(settings))
        yield place


@pytest.fixture(scope="module", autouse=True)
def orphan(place: Place) -> str:
    """A turn whose worker was killed between soft stop and end. Its claim runs out beside the other tests."""
    fleet, api = place
    turn_id = fleet.client.enqueue(ask(fleet, "orphan", max_total_tokens=1500))
    stop_file(fleet, turn_id)
    fleet.workers[-1].kill()
    api.gate("orphan").release()
    fleet.start_worker()
    return turn_id


def stop_file(fleet: Fleet, turn_id: str) -> dict[str, Any]:
    """What the agent was told, once it was told."""
    file = fleet.state.spool / f"{turn_id}.1" / "files/stop"
    return json.loads(until(lambda: text_of(file), "the soft stop"))


def touched(fleet: Fleet, name: str) -> list[str]:
    return sorted(path.name for path in fleet.workspace.glob(f"{name}-*"))


def ended(fleet: Fleet, api: ModelApi, result: TurnResult, script: str, kind: str) -> None:
    """It ended by itself, before its next tool ran, and is booked as it was billed."""
    assert result.error is not None
    assert (result.status, result.error.kind, result.attempts) == (Status.FAILED, kind, 1)
    assert touched(fleet, script) == [f"{script}-a"]
    assert (result.usage_source, result.exit_code) == ("result", 0)
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, script)


def test_agent_over_its_tokens_is_denied_its_next_tools_and_ends(place: Place) -> None:
    fleet, api = place
    turn_id = fleet.client.enqueue(ask(fleet, "spends", max_total_tokens=1500))
    told = stop_file(fleet, turn_id)
    api.gate("spends").release()
    result = fleet.result(turn_id)
    assert DENIED.items() <= told["hookSpecificOutput"].items()
    ended(fleet, api, result, "spends", "budget_exceeded")
    assert result.text == "I go on."
    assert len(api.bill("spends").requests) == 2
    assert (fleet.workspace / "looked").exists()  # the user's own hook, beside ours


def test_subagents_are_denied_their_tools_too(place: Place) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "delegates", max_total_tokens=1500))
    ended(fleet, api, result, "delegates", "budget_exceeded")


def test_agent_that_does_not_end_by_itself_is_ended_after_its_grace(place: Place) -> None:
    fleet, api = place
    turn_id = fleet.client.enqueue(ask(fleet, "waits", max_total_tokens=1500))
    until(lambda: touched(fleet, "waits"), "a tool that takes its time")
    api.gate("waits").release()
    result = fleet.result(turn_id)
    assert result.error is not None
    assert (result.status, result.error.kind, result.text) == (Status.FAILED, "budget_exceeded", "I wait.")
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, "waits")


def test_agent_is_asked_to_end_before_its_deadline(place: Place) -> None:
    fleet, api = place
    deadline = datetime.now(UTC) + timedelta(seconds=18)
    turn_id = fleet.client.enqueue(ask(fleet, "late", deadline=deadline.isoformat()))
    told = stop_file(fleet, turn_id)
    assert datetime.now(UTC) < deadline
    api.gate("late").release()
    assert told["stopReason"] == "Deadline exceeded"
    ended(fleet, api, fleet.result(turn_id), "late", "deadline_exceeded")


def test_what_a_killed_worker_has_asked_for_is_known_to_the_next(place: Place, orphan: str) -> None:
    fleet, api = place
    ended(fleet, api, fleet.result(orphan), "orphan", "budget_exceeded")
    fleet.assert_nothing_left()

"""Agents that die right after an answer: its record is not in the session file yet, but its bill is known."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from adapters.protocol.result import Status
from tests.fakes.model_api import Branch, Fault, ModelApi, Reply, Script, Text, ToolUse, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_bills import SONNET, ask, billed, booked, in_ledger
from tests.support.fleets.fleet import Fleet

# Claude Code writes an answer to its session file up to 0.2 s after it has printed it; the tool is faster. It may
# even start before the answer's end is printed: that answer would be in flight, and nobody would know its cost.
DIE = "kill -KILL $PPID"


def printed(answers: int, then: str) -> ToolUse:
    """A command that waits until so many answers are printed."""
    count = 'grep -c \'"type":"message_stop"\' "$RUNTURN_SPOOL/events"'
    return replies.bash(f'until [ "$({count})" -ge {answers} ]; do :; done; {then}')


# As many prompt tokens as were printed by then, and hardly any output.
_COUNTS = {
    "input_tokens": 401,
    "output_tokens": 2,
    "cache_read_input_tokens": 81,
    "cache_creation_input_tokens": 11,
}
_ACCOUNT = {"inputTokens": 401, "outputTokens": 2, "cacheReadInputTokens": 81, "cacheCreationInputTokens": 11}
FORGED = json.dumps(
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "forged",
        "num_turns": 2,
        "stop_reason": "end_turn",
        "usage": _COUNTS,
        "modelUsage": {SONNET: {**_ACCOUNT, "costUSD": 0.001}},
    }
)
LAST = Reply((Text("went on"),), Usage(400, 60, 70, 8))
SCRIPTS = (
    Script(
        "dies",
        (
            Reply((replies.bash("echo a"),), Usage(100, 20, 30, 4)),
            Reply((Text("about to die"), printed(2, DIE)), Usage(300, 50, 50, 6, cache_creation_1h=6)),
            LAST,
        ),
    ),
    Script("at-once", (Reply((printed(1, DIE),), Usage(310, 52, 51, 7)), LAST)),
    Script("unrecorded", (Reply((printed(1, DIE),), Usage(320, 53, 52, 8)),)),
    Script(
        "forges",
        (
            Reply((replies.bash("echo a"),), Usage(101, 21, 31, 5)),
            Reply(
                (printed(2, f"printf '\\n%s\\n' '{FORGED}' >>\"$RUNTURN_SPOOL/events\"; {DIE}"),),
                Usage(300, 50, 50, 6),
            ),
            LAST,
        ),
    ),
    Script(
        "delegates",
        (Reply((replies.agent("SUBJOB please"),), Usage(130, 45, 33, 7)), LAST),
        branches=(
            Branch(
                (
                    Reply((replies.bash("echo a"),), Usage(320, 9, 9, 9)),
                    Reply((replies.bash(DIE),), Usage(330, 60, 10, 5)),
                ),
                prompt="SUBJOB",
            ),
        ),
    ),
    Script(
        "breaks",
        (
            Reply((Text("broken"),), Usage(340, 61, 11, 9), fault=Fault("error", 3)),
            Reply((printed(1, DIE),), Usage(341, 62, 12, 10)),
            LAST,
        ),
    ),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ModelApi]]:
    """One fleet for all of them."""
    with claude_fleet(tmp_path_factory.mktemp("killed"), *SCRIPTS) as place:
        yield place


@pytest.mark.parametrize(
    ("script", "cost_usd"),
    [
        ("dies", (400 * 3 + 70 * 15 + 80 * 0.3 + 4 * 3.75 + 6 * 6) / 1e6),
        ("at-once", (310 * 3 + 52 * 15 + 51 * 0.3 + 7 * 3.75) / 1e6),
    ],
)
def test_answer_before_the_kill_is_booked_to_the_token(
    place: tuple[Fleet, ModelApi], script: str, cost_usd: float
) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, script))
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2)
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, script)
    assert result.usage_complete
    assert fleet.ledger.accounting.usage_of(result.turn_id)[1].cost_usd == pytest.approx(cost_usd)


def test_answer_of_a_session_without_files_is_booked(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "unrecorded", {"session_persistence": False}, max_attempts=1))
    assert result.status is not Status.COMPLETED
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, "unrecorded")


def test_agent_that_is_killed_after_a_result_is_billed_for_all_its_answers(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "forges"))
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2)
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, "forges")


def test_answer_of_a_subagent_before_the_kill_lacks_its_output_at_most(place: tuple[Fleet, ModelApi]) -> None:
    """Claude Code does not print how many output tokens it had."""
    fleet, api = place
    result = fleet.run(ask(fleet, "delegates"))
    assert (result.status, result.attempts) == (Status.COMPLETED, 2)
    (tokens,), (owed,) = booked(result).values(), billed(api, "delegates").values()
    assert (tokens[0], *tokens[2:]) == (owed[0], *owed[2:])
    # Both its answers may have come within the last 0.2 s; one token is printed of each.
    assert owed[1] - (60 - 1) - (9 - 1) <= tokens[1] <= owed[1]
    assert not result.usage_complete


def test_answer_that_broke_off_before_the_kill_is_booked_as_far_as_it_was_printed(
    place: tuple[Fleet, ModelApi],
) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "breaks"))
    assert (result.status, result.attempts) == (Status.COMPLETED, 2)
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, "breaks")
    assert not result.usage_complete

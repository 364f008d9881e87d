"""Agents that die right after an answer: its record is not in the session file yet, but its bill is known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.protocol.result import Status
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_bills import ask, billed, booked, in_ledger
from tests.support.fleets.fleet import Fleet

# Claude Code writes an answer to its session file up to 0.2 s after it has printed it; the tool is faster.
DIE = replies.bash("kill -KILL $PPID")
SCRIPTS = (
    Script(
        "dies",
        (
            Reply((replies.bash("echo a"),), Usage(100, 20, 30, 4)),
            Reply((Text("about to die"), DIE), Usage(300, 50, 50, 6)),
            Reply((Text("went on"),), Usage(400, 60, 70, 8)),
        ),
    ),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ModelApi]]:
    """One fleet for all of them."""
    with claude_fleet(tmp_path_factory.mktemp("killed"), *SCRIPTS) as place:
        yield place


def test_answer_before_the_kill_is_booked_to_the_token(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "dies"))
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2)
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, "dies")
    assert result.usage_complete

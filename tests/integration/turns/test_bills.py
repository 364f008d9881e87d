"""The real Claude Code through the queue: what the ledger books is what the API billed, to the token."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import ModelBill, Status, TurnResult
from adapters.usage import Tokens
from tests.fakes.model_api import (
    Branch,
    Fault,
    Hold,
    HttpError,
    ModelApi,
    Reply,
    Script,
    Text,
    ToolUse,
    Usage,
    replies,
)
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import Fleet
from tests.support.processes import of_turns
from tests.support.waiting import until

SONNET = "claude-sonnet-4-5"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

# Each script is chosen by its marker in the prompt. All usages differ, so that no sum is right by accident.
SCRIPTS = (
    Script(
        "tools",
        (
            Reply((Text("both"), replies.bash("echo one"), replies.bash("echo two")), Usage(1000, 200, 3000, 500)),
            Reply((Text("done"),), Usage(50, 30, 4500, 260)),
        ),
    ),
    Script(
        "models",
        (
            Reply((replies.agent("SUBJOB please", model="haiku"),), Usage(120, 45, 33, 7)),
            Reply((Text("main done"),), Usage(130, 46, 34, 8)),
        ),
        branches=(
            Branch(
                (
                    Reply((replies.bash("echo sub"),), Usage(300, 60, 10, 5)),
                    Reply((Text("sub done"),), Usage(310, 61, 11, 6)),
                ),
                prompt="SUBJOB",
            ),
        ),
    ),
    Script(
        "again",
        (
            Reply((replies.agent("SUBTASK please"),), Usage(140, 47, 35, 9)),
            Reply((Text("all done"),), Usage(150, 48)),
        ),
        branches=(
            Branch(
                (
                    Reply((Text("sub"),), Usage(320, 62), fault=Fault("error", 3)),
                    Reply((Text("sub"),), Usage(330, 63)),
                ),
                prompt="SUBTASK",
            ),
        ),
    ),
    Script("turns", tuple(Reply((replies.bash(f"echo {n}"),), Usage(100 + n, 20, 30, 4)) for n in range(3))),
    Script("budget", tuple(Reply((replies.bash(f"echo {n}"),), Usage(10000 + n, 2000)) for n in range(4))),
    Script(
        "limited",
        (
            HttpError(429, "rate_limit_error", "slow down", {"retry-after": "1"}),
            Reply((Text("fine"),), Usage(200, 22, 40, 9)),
        ),
    ),
    Script("unauthorized", (replies.unauthorized(), replies.unauthorized(), replies.unauthorized())),
    Script("refusing", tuple(Reply((Text("no"),), Usage(60 + n, 3), stop_reason="refusal") for n in range(2))),
    Script("schema", (Reply((ToolUse("StructuredOutput", {"n": 3}),), Usage(100, 20, 30, 4)),)),
    Script(
        "resumed",
        (Reply((Text("first"),), Usage(11, 12, 13, 14)), Reply((Text("second"),), Usage(21, 22, 23, 24))),
    ),
    Script(
        "terminated",
        (
            Reply((replies.bash("echo a"),), Usage(100, 20, 30, 4)),
            Reply((Text("cut off"),), Usage(300, 50, 50, 6), hold=Hold("terminated", 1)),
            Reply((Text("went on"),), Usage(400, 60, 70, 8)),
        ),
    ),
    Script(
        "cancelled",
        (
            Reply(
                (replies.bash("(setsid sh -c 'trap \"\" TERM INT HUP; sleep 300' &) ; echo up; sleep 300"),),
                Usage(100, 20, 30, 4),
            ),
        ),
    ),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ModelApi]]:
    """One fleet for all of them."""
    with claude_fleet(tmp_path_factory.mktemp("bills"), *SCRIPTS) as place:
        yield place


def ask(fleet: Fleet, script: str, options: dict[str, Any] | None = None, **fields: Any) -> TurnRequest:
    """A request whose API calls go to that script."""
    return fleet.request(f"do it [script:{script}]", options={"model": SONNET, **(options or {})}, **fields)


def booked(result: TurnResult) -> dict[str, tuple[int, int, int, int]]:
    """What a result says of each model."""
    return {
        model: (
            used.input_tokens,
            used.output_tokens,
            used.cache_read_input_tokens,
            used.cache_creation_input_tokens,
        )
        for model, used in result.usage.by_model.items()
    }


def billed(api: ModelApi, script: str) -> dict[str, tuple[int, int, int, int]]:
    """What the API charged for a script."""
    bill = api.bill(script).by_model
    return {model: (used.input, used.output, used.cache_read, used.cache_creation) for model, used in bill.items()}


def in_ledger(fleet: Fleet, turn_id: str) -> dict[str, tuple[int, int, int, int]]:
    """What the ledger has booked as observed, over all attempts."""
    sums: dict[str, Tokens] = {}
    for usage in fleet.ledger.accounting.usage_of(turn_id).values():
        assert usage.source.observed
        for model, used in usage.by_model.items():
            sums[model] = sums.get(model, Tokens()) + used.tokens
    return {model: _counts(tokens) for model, tokens in sums.items()}


def prompts(fleet: Fleet, turn_id: str) -> list[int]:
    """The input tokens of each message that has begun so far."""
    usages = (event for event in fleet.events(turn_id) if event["event"] == "token_usage")
    return [event["added"]["input_tokens"] for event in usages if event["added"]["input_tokens"]]


def _counts(used: Tokens | ModelBill) -> tuple[int, int, int, int]:
    return (used.input_tokens, used.output_tokens, used.cache_read_input_tokens, used.cache_creation_input_tokens)


def test_parallel_tools(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "tools"))
    assert (result.status, result.text, result.usage_source) == (Status.COMPLETED, "done", "result")
    (session,) = (event for event in fleet.events(result.turn_id) if event["event"] == "session_started")
    assert (
        result.agent_version == session["agent_version"] == fleet.ledger.reports.turn(result.turn_id).agent_version
    )
    assert result.agent_version is not None
    assert (
        booked(result)
        == in_ledger(fleet, result.turn_id)
        == billed(api, "tools")
        == {SONNET: (1050, 230, 7500, 760)}
    )
    assert result.cost_usd == pytest.approx(0.0117)
    tools = [event["tool"] for event in fleet.events(result.turn_id) if event["event"] == "tool_finished"]
    assert tools == ["Bash", "Bash"]


def test_subagent_with_another_model(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "models"))
    assert result.status is Status.COMPLETED
    assert len(booked(result)) == 2
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, "models")
    assert (result.usage_source, result.usage_complete) == ("result", True)


def test_subagent_whose_answer_broke_off_leaves_a_bill_that_may_be_short(place: tuple[Fleet, ModelApi]) -> None:
    """It is asked again, of which nothing is printed; what the broken one cost is told nowhere."""
    fleet, api = place
    result = fleet.run(ask(fleet, "again"))
    assert (result.status, result.usage_source, result.usage_complete) == (Status.COMPLETED, "result", False)
    assert booked(result) == in_ledger(fleet, result.turn_id) == {SONNET: (620, 158, 35, 9)}
    assert billed(api, "again")[SONNET][0] == 620 + 320


@pytest.mark.parametrize(
    ("script", "options", "kind"),
    [
        ("turns", {"max_turns": 2}, "turn_failed"),
        ("budget", {"max_budget_usd": 0.05}, "budget_exceeded"),
        ("unauthorized", {"max_api_retries": 0}, "authentication_failed"),
        ("refusing", {}, "turn_failed"),
    ],
)
def test_failures_are_billed_too(
    place: tuple[Fleet, ModelApi], script: str, options: dict[str, Any], kind: str
) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, script, options))
    assert result.error is not None
    assert (result.status, result.error.kind, result.attempts) == (Status.FAILED, kind, 1)
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, script)


def test_rate_limit_that_passes(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "limited"))
    assert result.status is Status.COMPLETED
    assert booked(result) == billed(api, "limited") == {SONNET: (200, 22, 40, 9)}
    retries = [event for event in fleet.events(result.turn_id) if event["event"] == "api_retry"]
    assert [event["status"] for event in retries] == [429]


def test_structured_output(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(ask(fleet, "schema", output_schema=SCHEMA))
    assert (result.status, result.structured_output) == (Status.COMPLETED, {"n": 3})
    assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, "schema")


def test_resumed_session_books_each_turn_by_itself(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    first = fleet.run(ask(fleet, "resumed"))
    second = fleet.run(ask(fleet, "resumed", session_id=first.session_id))
    assert first.session_id == second.session_id
    assert booked(first) == in_ledger(fleet, first.turn_id) == {SONNET: (11, 12, 13, 14)}
    assert booked(second) == in_ledger(fleet, second.turn_id) == {SONNET: (21, 22, 23, 24)}
    assert billed(api, "resumed") == {SONNET: (32, 34, 36, 38)}
    assert second.cost_usd == pytest.approx((21 * 3 + 22 * 15 + 23 * 0.3 + 24 * 3.75) / 1e6)


def test_agent_ended_by_a_signal_is_resumed_and_all_of_it_is_booked(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    turn_id = fleet.client.enqueue(ask(fleet, "terminated"))
    api.gate("terminated").wait_until_reached()
    until(lambda: 300 in prompts(fleet, turn_id), "the beginning of the message in flight")
    (agent,) = fleet.agents()
    psutil.Process(agent).send_signal(signal.SIGTERM)
    result = fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2)
    # The message in flight was billed for its input, too, and for what was written of it: nobody can see how much.
    assert not result.usage_complete
    assert in_ledger(fleet, turn_id) == booked(result) == billed(api, "terminated") == {SONNET: (800, 81, 150, 18)}
    assert result.usage_source == "session_files"


def test_cancel_leaves_no_process(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    turn_id = fleet.client.enqueue(ask(fleet, "cancelled"))
    until(lambda: len(_sleepers(fleet)) >= 2, "the tool's processes")
    done = fleet.command("cancel", turn_id, "--json")
    assert done.returncode == 0, done.stderr
    result = fleet.result(turn_id)
    assert result.error is not None
    assert (result.status, result.error.kind) == (Status.CANCELLED, "turn_cancelled")
    assert booked(result) == in_ledger(fleet, turn_id) == billed(api, "cancelled")
    fleet.assert_nothing_left()


def _sleepers(fleet: Fleet) -> list[psutil.Process]:
    found = []
    for process in of_turns(fleet.state.spool):
        try:
            if process.name() == "sleep":
                found.append(process)
        except psutil.Error:
            continue
    return found

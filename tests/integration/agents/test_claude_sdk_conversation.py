"""The conversation with the real Claude Code, on a wire of this process, against a scripted API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.claude_sdk.adapter import ClaudeSdk
from adapters.claude_sdk.gates import Gates
from adapters.contract import AgentConfig
from adapters.errors import InvalidRequest
from adapters.live import Control, Verdict
from adapters.usage import Tokens
from tests.fakes.model_api import Hold, ModelApi, Reply, Script, Text, ToolUse, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.support.recordings.wires import Stage

MODEL = "claude-sonnet-4-5"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOUCH = Reply((replies.bash("touch it"),), Usage(100, 20, 30, 4))
DONE = Reply((Text("done"),), Usage(50, 30, 40, 6))

SCRIPTS = (
    *(Script(name, (TOUCH, DONE)) for name in ("runs", "refused", "denied", "raises", "fails", "late", "cut")),
    Script("planned", (TOUCH, DONE), per_session=True),
    Script("lost", (TOUCH, Reply((ToolUse("mcp__runturn__add", {"a": 2, "b": 3}),), Usage(101, 21)), DONE)),
    Script("asked", (TOUCH, DONE), per_session=True),
    Script("tool", (Reply((ToolUse("mcp__runturn__add", {"a": 2, "b": 3}),), Usage(101, 21)), DONE)),
    Script("schema", (Reply((ToolUse("StructuredOutput", {"n": 3}),), Usage(100, 20, 30, 4)),)),
    Script(
        "sent",
        (
            Reply((Text("first"),), Usage(10, 1), hold=Hold("sent", 1)),
            Reply((replies.bash("touch it"),), Usage(11, 2)),
            Reply((Text("second"),), Usage(12, 3)),
        ),
    ),
    Script("model", (Reply((Text("first"),), Usage(10, 1), hold=Hold("model", 1)), DONE)),
    Script("interrupted", (Reply((Text("long"),), Usage(13, 4), hold=Hold("interrupted", 2)),)),
)

Open = Callable[..., Stage]


def add(a: int, b: int) -> dict[str, int]:
    """Adds."""
    return {"sum": a + b}


@pytest.fixture(scope="module")
def api() -> Iterator[ModelApi]:
    """One for all of them."""
    with ModelApi(*SCRIPTS) as api:
        yield api


@pytest.fixture
def stage(api: ModelApi, tmp_path: Path) -> Open:
    """Opens a turn whose API calls go to a script."""
    binary = claude_binary()
    assert binary is not None, "the Claude Code CLI is missing; it comes with claude-agent-sdk"
    adapter = ClaudeSdk(AgentConfig(str(binary), tools=(f"{__name__}:add",)))
    (tmp_path / "home").mkdir()
    environment = claude_environment(api.base_url, tmp_path / "home", max_retries=1)

    def open_stage(script: str, options: dict[str, Any] | None = None, **fields: Any) -> Stage:
        prompt = f"do it [script:{script}]"
        return Stage(tmp_path, environment, adapter, prompt, options={"model": MODEL, **(options or {})}, **fields)

    return open_stage


def billed(api: ModelApi, script: str) -> Tokens:
    """What the API charged."""
    (used,) = api.bill(script).by_model.values()
    return Tokens(used.input, used.output, used.cache_read, used.cache_creation)


async def test_a_turn_runs_and_is_billed(stage: Open, api: ModelApi) -> None:
    async with stage("runs") as turn:
        judged = await turn.finish()
        assert (judged.error, turn.agent.state.report.text) == (None, "done")
        assert judged.usage.tokens == billed(api, "runs") == Tokens(150, 50, 70, 10)
        assert (turn.workspace / "it").exists()
        (invoked,) = turn.named("tool_invoked")
        assert (invoked.tool, invoked.params["command"], invoked.result["interrupted"]) == (
            "Bash",
            "touch it",
            False,
        )
        assert [event.status for event in turn.named("agent_status")] == ["ready"]
        assert [event.text for event in turn.named("notification") if event.topic == "stop"] == ["end_turn"]


@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        ("refused", {}, "Token budget exhausted"),
        (
            "denied",
            {"permissions": {"deny": ["Bash(touch:*)"]}, "permission_mode": "bypassPermissions"},
            "One of this turn's rules denies",
        ),
        ("raises", {}, "This turn's gate failed"),
    ],
)
async def test_a_denied_tool_never_runs(stage: Open, script: str, options: dict[str, Any], reason: str) -> None:
    async with stage(script, options) as turn:
        calls = iter((None, reason, None))  # the prompt passes, the tool does not
        if script == "refused":
            turn.desk.refusal = lambda: next(calls)  # type: ignore[method-assign]
        if script == "raises":
            turn.desk.refusal = lambda: None if next(calls) is None else 1 // 0  # type: ignore[method-assign]
        judged = await turn.finish()
        assert (judged.error and judged.error.kind) == ("turn_cancelled" if script == "refused" else None)
        assert not (turn.workspace / "it").exists()
        (finished,) = turn.named("tool_finished")
        assert reason in finished.error


@pytest.mark.parametrize(
    "options",
    [
        {"permission_mode": "bypassPermissions", "allowed_tools": "Bash"},
        {"permissions": {"allow": ["Bash"], "default": "allow"}},
    ],
)
async def test_a_plan_turn_changes_nothing(stage: Open, options: dict[str, Any]) -> None:
    async with stage("planned", options, plan=True) as turn:
        assert (await turn.finish()).error is None
        assert turn.named("tool_finished")[0].error
        assert not (turn.workspace / "it").exists()


async def test_a_hook_that_fails_behind_all_that_catches_it_blocks_the_tool(
    stage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Gates, happened: Mapping[str, Any]) -> dict[str, Any]:
        if happened["hook_event_name"] == "PreToolUse":
            raise LookupError("nothing catches it")
        return {}

    monkeypatch.setattr(Gates, "answer", fail)
    async with stage("fails") as turn:
        await turn.finish()
        assert turn.named("tool_finished")[0].error
        assert not (turn.workspace / "it").exists()


async def test_a_prompt_that_comes_too_late_is_no_success(stage: Open) -> None:
    async with stage("late") as turn:
        turn.desk.reason = "Deadline exceeded"
        judged = await turn.finish()
        assert judged.error is not None
        assert (judged.error.kind, judged.usage.tokens.total) == ("turn_cancelled", 0)


@pytest.mark.parametrize("allowed", [True, False, None])
async def test_the_producer_is_asked(stage: Open, allowed: bool | None) -> None:
    async with stage("asked", {"permissions": {"allow": ["Read"], "ask": True}}) as turn:
        turn.desk.verdict = None if allowed is None else Verdict(allowed, "because")
        judged = await turn.finish()
        assert judged.error is None
        (asked,) = turn.desk.asked
        assert (asked.tool, asked.input["command"]) == ("Bash", "touch it")
        assert (turn.workspace / "it").exists() is bool(allowed)


async def test_an_in_process_tool(stage: Open) -> None:
    async with stage("tool", {"tools": ["add"]}) as turn:
        assert (await turn.finish()).error is None
        (invoked,) = turn.named("tool_invoked")
        assert invoked.tool == "mcp__runturn__add"
        assert '{"sum":5}' in str(invoked.result)


async def test_structured_output_ends_the_turn(stage: Open, api: ModelApi) -> None:
    async with stage("schema", output_schema=SCHEMA) as turn:
        judged = await turn.finish()
        assert (judged.error, turn.agent.state.report.structured_output) == (None, {"n": 3})
        assert judged.usage.tokens == billed(api, "schema")


async def test_a_further_message_is_answered_before_the_end(stage: Open, api: ModelApi) -> None:
    async with stage("sent") as turn:
        leading = turn.worker()
        await turn.agent.has_printed('"subtype":"init"')
        await asyncio.to_thread(api.gate("sent").wait_until_reached)
        await turn.control(Control.SEND, "and now the second")
        with pytest.raises(InvalidRequest, match="there is no permission mode 'yolo'"):
            await turn.control(Control.SET_PERMISSION_MODE, "yolo")
        assert await turn.control(Control.SET_PERMISSION_MODE, "acceptEdits") == {"permission_mode": "acceptEdits"}
        assert "commands" in await turn.control(Control.SERVER_INFO)
        api.gate("sent").release()
        await leading
        judged = await turn.agent.judgement()
        assert (judged.error, turn.agent.state.report.text) == (None, "second")
        assert judged.usage.tokens == billed(api, "sent") == Tokens(33, 6)


async def test_another_model_may_cost_what_no_account_has(stage: Open, api: ModelApi) -> None:
    async with stage("model") as turn:
        leading = turn.worker()
        await asyncio.to_thread(api.gate("model").wait_until_reached)
        assert await turn.control(Control.SET_MODEL, "haiku") == {"model": "haiku"}
        await turn.control(Control.SEND, "go on")
        api.gate("model").release()
        await leading
        judged = await turn.agent.judgement()
        assert judged.error is None
        assert len(judged.usage.by_model) == 2
        assert not judged.usage.complete


async def test_interrupted(stage: Open, api: ModelApi) -> None:
    async with stage("interrupted") as turn:
        leading = turn.worker()
        await asyncio.to_thread(api.gate("interrupted").wait_until_reached)
        await turn.control(Control.INTERRUPT)
        await leading
        judged = await turn.agent.judgement()
        assert judged.error is not None
        assert judged.error.kind == "turn_cancelled"


async def test_another_worker_answers_what_was_open(stage: Open) -> None:
    options = {"permissions": {"ask": True, "allow": ["mcp__runturn__add"]}, "tools": ["add"]}
    async with stage("lost", options) as turn:
        turn.desk.hold = asyncio.Event()
        first = turn.worker()
        await turn.agent.has_printed('"can_use_tool"')
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        said = list(turn.agent.said)
        turn.desk.hold, turn.desk.verdict = None, Verdict(False, "not now")
        judged = await turn.finish()
        assert (judged.error, turn.agent.state.report.text) == (None, "done")
        assert not (turn.workspace / "it").exists()
        assert [event.tool for event in turn.named("tool_invoked")] == ["mcp__runturn__add"]
        assert [line["type"] for line in turn.heard].count("user") == 1
        assert b"initialize" not in b"".join(turn.agent.said[len(said) :])
        answered = [line["response"]["request_id"] for line in turn.heard if line["type"] == "control_response"]
        assert len(answered) == len(set(answered))


async def test_an_end_of_input_amid_a_hook_denies_the_tool(stage: Open) -> None:
    async with stage("cut", {"permissions": {"ask": True}}) as turn:
        turn.desk.refusal = lambda: None  # type: ignore[method-assign]
        turn.desk.hold = asyncio.Event()
        leading = turn.worker()
        await turn.agent.has_printed('"can_use_tool"')
        turn.agent.process.stdin.close()
        leading.cancel()
        await turn.agent.judgement()
        assert not (turn.workspace / "it").exists()

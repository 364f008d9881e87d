"""Recordings of the real Codex: each folds to what happened, and to what the API billed."""

from __future__ import annotations

import pytest

from adapters import events as ev
from adapters.codex.rollout import next_files, session_files
from adapters.contract import Exit
from adapters.errors import Retry
from adapters.turn_state import TurnState, fold
from adapters.usage import Tokens, Usage, UsageSource
from tests.support.recordings.codex import CODEX, bill, billed_names, folded, lines, names

FAILURES = {
    "500": ("overloaded", Retry.BACKOFF),
    "auth": ("authentication_failed", Retry.NEVER),
    "badflag": ("port_exit", Retry.NEVER),
    "badreq": ("invalid_request", Retry.NEVER),
    "ctx": ("turn_failed", Retry.NEVER),
    "defaultretries-500": ("overloaded", Retry.BACKOFF),
    "defaultretries-auth": ("authentication_failed", Retry.NEVER),
    "defaultretries-cut": ("api_unreachable", Retry.BACKOFF),
    "defaultretries-ratelimit": ("rate_limited", Retry.BACKOFF),
    "hang-SIGINT": ("port_exit", Retry.BACKOFF),
    "interrupted": ("port_exit", Retry.BACKOFF),
    "mcp-required": ("port_exit", Retry.NEVER),
    "native-slowtool-SIGINT": ("port_exit", Retry.BACKOFF),
    "native-slowtool-SIGKILL-group": ("turn_cancelled", Retry.NEVER),
    "native-slowtool-SIGTERM": ("turn_cancelled", Retry.NEVER),
    "nogit": ("port_exit", Retry.NEVER),
    "nokey": ("authentication_failed", Retry.NEVER),
    "noprompt": ("port_exit", Retry.NEVER),
    "ratelimit": ("rate_limited", Retry.BACKOFF),
    "resume-unknown": ("session_not_found", Retry.NEVER),
    "slowtool-SIGINT": ("port_exit", Retry.BACKOFF),
    "slowtool-SIGKILL": ("turn_cancelled", Retry.NEVER),
    "slowtool-SIGTERM": ("turn_cancelled", Retry.NEVER),
}
MODEL = "gpt-6.1-sol"
CHILD = "01a2051b-371f-7062-a865-78d343957992"  # the thread of its subagent


@pytest.mark.parametrize("name", names())
def test_recording_is_judged_by_what_happened(name: str) -> None:
    state, _, judgement = folded(name)
    error = judgement.error
    assert (error and (error.kind, error.retry)) == FAILURES.get(name)
    assert state.malformed == 0


@pytest.mark.parametrize("name", [name for name in billed_names() if name != "midfail-resume"])
def test_recording_folds_to_its_bill(name: str) -> None:
    assert folded(name)[2].usage.tokens == bill(name)


def test_count_of_a_resumed_thread_is_not_taken_for_the_turns() -> None:
    _, _, judgement = folded("midfail-resume", resumed=True)
    assert bill("midfail-resume") == Tokens(1000, 120)
    assert (judgement.usage, judgement.read_session_files) == (
        Usage({}, UsageSource.NONE, complete=False),
        True,
    )


@pytest.mark.parametrize(
    ("name", "rollouts", "expected"),
    [
        ("tool", ["tool"], Tokens(1801, 100, 200, 14)),
        ("resumed", ["resumed"], Tokens(902, 50, 100, 7)),
        ("subagent", ["subagent", "subagent.child"], Tokens(3618, 200, 400, 28)),
        ("interrupted", ["interrupted"], Tokens(907, 50, 100, 7)),
    ],
)
def test_rollouts_tell_the_exact_bill(name: str, rollouts: list[str], expected: Tokens) -> None:
    state, _, _ = folded(name, resumed=name == "resumed")
    usage = CODEX.session_usage(_records(rollouts), state)
    assert (usage.source, usage.complete) == (UsageSource.SESSION_FILES, True)
    assert {model: used.tokens for model, used in usage.by_model.items()} == {MODEL: expected}
    assert usage.cost_usd == pytest.approx(
        (expected.input_tokens * 2 + expected.output_tokens * 10 + expected.cache_read_input_tokens * 0.1) / 1e6
        + expected.cache_creation_input_tokens * 2.5 / 1e6
    )


def test_bill_without_a_subagents_rollout_is_not_complete() -> None:
    state, _, _ = folded("subagent")
    assert not CODEX.session_usage(_records(["subagent"]), state).complete


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("subagent-cut", Tokens(4048, 448, 896, 168)),  # the connection broke, it asked again
        ("subagent-ended", Tokens(2082, 282, 564, 142)),  # the turn was over before it had its answer
    ],
)
def test_answer_to_a_subagent_that_broke_off_leaves_the_bill_incomplete(name: str, told: Tokens) -> None:
    state, _, judgement = folded(name)
    usage = CODEX.session_usage(_records([name, f"{name}.child"]), state)
    assert (judgement.error, usage.tokens, usage.complete) == (None, told, False)


def test_subagent_that_was_killed_amid_a_tool_was_asking_nothing() -> None:
    child = _records(["subagent.child"])
    bill = next(n for n, line in enumerate(child) if b'"token_usage_record"' in line)
    call = b'{"type":"response_item","payload":{"type":"function_call"}}'
    result = b'{"type":"response_item","payload":{"type":"function_call_output","output":"%s"}}'
    state, _, _ = folded("subagent")
    complete = [
        CODEX.session_usage([*_records(["subagent"]), *child[:bill], call, child[bill], *after], state).complete
        for after in ([], [result % b"done"], [result % b"aborted by user"])
    ]
    assert complete == [True, False, True]


def test_rollout_of_a_fork_begins_with_a_copy_of_its_parents() -> None:
    state, _, _ = folded("subagent-forked")
    records = _records(["subagent-forked", "subagent-forked.child"])
    usage = CODEX.session_usage(records, state)
    assert (usage.tokens, usage.complete) == (Tokens(5056, 556, 1112, 206), True)
    without_bill = [line for line in records if b'"token_usage_record"' not in line or line in records[:-4]]
    assert not CODEX.session_usage(without_bill, state).complete


def test_answer_that_has_no_bill_leaves_it_incomplete() -> None:
    state, _, _ = folded("tool")
    records = _records(["tool"])
    last = max(n for n, line in enumerate(records) if b'"token_usage_record"' in line)
    one_short = [*records[:last], *records[last + 1 :]]
    assert CODEX.session_usage(records, state).complete
    assert not CODEX.session_usage(one_short, state).complete


def test_turn_whose_thread_is_not_named_has_no_whole_account() -> None:
    state = TurnState()
    fold(CODEX.parser(), state, lines("interrupted")[1:])
    judgement = CODEX.judgement(state, Exit(1))
    assert (judgement.usage, judgement.read_session_files) == (
        Usage({}, UsageSource.NONE, complete=False),
        False,
    )


def test_answer_under_way_when_the_agent_died_leaves_the_bill_incomplete() -> None:
    state = TurnState()
    state.apply([ev.SessionStarted("thread"), ev.ToolStarted("1", "command_execution")])
    records = _records(["interrupted"])
    before_its_bill = records[: next(n for n, line in enumerate(records) if b"token_usage_record" in line)]
    assert not CODEX.session_usage(before_its_bill, state).complete
    state.apply([ev.ToolFinished("1", "command_execution")])
    assert not CODEX.session_usage(_records(["tool"]), state).complete


def test_same_answer_in_two_rollouts_is_billed_once() -> None:
    state, _, _ = folded("tool")
    twice = CODEX.session_usage([*_records(["tool"]), *_records(["tool"])], state)
    assert twice == CODEX.session_usage(_records(["tool"]), state)


def test_answers_to_other_turns_of_a_subagent_are_not_this_ones() -> None:
    state, _, _ = folded("tool")
    strange = [line.replace(b'"root_turn_id":"01', b'"root_turn_id":"00') for line in _records(["subagent.child"])]
    assert CODEX.session_usage([*_records(["tool"]), *strange], state).tokens == Tokens(1801, 100, 200, 14)


def test_rollouts_of_subagents_are_read_after_that_of_the_main_thread() -> None:
    state, _, _ = folded("subagent")
    following = next_files(state)
    assert state.session_id is not None
    assert following(()) == session_files(state.session_id)
    assert following(_records(["subagent"])) == session_files(CHILD)
    assert following(_records(["subagent", "subagent.child"])) is None
    assert next_files(TurnState())(()) is None


def test_tools_texts_and_errors_become_events() -> None:
    _, events, _ = folded("tools")
    told = [type(event).name for event in events if event is not ev.HEARTBEAT]
    assert told == [
        "session_started", "notification", "thinking", "text",
        "tool_started", "tool_finished", "tool_started", "tool_finished", "text", "turn_completed",
    ]  # fmt: skip
    worked, failed = [event for event in events if isinstance(event, ev.ToolFinished)]
    assert (worked.output, failed.output) == ("hello-from-tool\n", "")
    assert failed.error == "Exit code 2\nls: cannot access '/nonexistent-dir-xyz': No such file or directory\n"


def test_tools_of_all_kinds_are_told() -> None:
    _, events, _ = folded("items-mcp-never")
    started = [(event.tool, event.summary) for event in events if isinstance(event, ev.ToolStarted)]
    assert started == [
        ("file_change", "/workspace/added.txt"), ("web_search", "weather"), ("mcp__echo__echo", '{"text":"hi"}'),
    ]  # fmt: skip
    finished = [event for event in events if isinstance(event, ev.ToolFinished)]
    assert [event.error for event in finished] == [
        None, None, "MCP tool call requires approval, but approval policy is never",
    ]  # fmt: skip


def test_results_of_mcp_tools_are_told() -> None:
    _, events, _ = folded("items-mcp")
    assert [event.output for event in events if isinstance(event, ev.ToolFinished)][-1] == "echo:hi"


def test_notices_of_reconnecting_are_no_sign_of_life() -> None:
    _, events, _ = folded("defaultretries-auth")
    retries = [event for event in events if isinstance(event, ev.ApiRetry)]
    assert [(event.attempt, event.max_retries, event.status) for event in retries] == [
        (n, 5, 401) for n in range(1, 6)
    ]
    down = [event for line in lines("down") for event in CODEX.parser().feed(line, None)]
    assert {type(event) for event in down[3:]} == {ev.ApiRetry}


def test_final_message_is_the_structured_output_where_one_was_asked_for() -> None:
    state, _, judgement = folded("schema")
    assert judgement.error is None
    assert state.report is not None
    assert state.report.structured_output == {"answer": "42"}
    state, _, _ = folded("tools")
    state.expects_output = True
    error = CODEX.judgement(state, Exit(0)).error
    assert error is not None
    assert error.kind == "structured_output_missing"


def _records(rollouts: list[str]) -> list[bytes]:
    return [line for name in rollouts for line in lines(f"{name}.rollout")]

"""Exact usage from the records that Claude Code keeps of a session."""

from __future__ import annotations

import json

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.claude_code.prices import cost_usd
from adapters.claude_code.session_files import final_answer, read_usage
from adapters.contract import Exit
from adapters.events import Event, Report, SessionStarted, TokenUsage, ToolStarted, TurnCompleted
from adapters.turn_state import TurnState
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource
from tests.support.recordings.claude_code import folded, load

SONNET = "claude-sonnet-4-5"


def record(message: str, output: int, *, model: str = SONNET, whole: bool = True, long_lived: int = 0) -> bytes:
    usage = {
        "input_tokens": 100,
        "output_tokens": output,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 4,
        "cache_creation": {"ephemeral_1h_input_tokens": long_lived},
    }
    body: dict[str, object] = {"id": message, "model": model, "usage": usage, "stop_reason": None}
    if whole:
        body |= {"stop_reason": "end_turn", "stop_details": None}
    return json.dumps({"type": "assistant", "message": body}).encode()


def started(*events: Event) -> TurnState:
    state = TurnState()
    state.apply([SessionStarted("s", SONNET, "2.1.330"), *events, TokenUsage(SONNET, Tokens())])
    return state


def printed(message: str, output: int, *, final: bool = True, cost_usd: float | None = None) -> TokenUsage:
    return TokenUsage(SONNET, Tokens(100, output, 30, 4), final, answer=message, cost_usd=cost_usd)


def test_blocks_of_one_message_are_billed_once_with_its_last_count() -> None:
    usage = read_usage([record("a", 1), record("a", 45), record("b", 7)], started())

    assert usage.by_model[SONNET].tokens == Tokens(200, 52, 60, 8)
    assert usage.source is UsageSource.SESSION_FILES
    assert usage.complete


# -- messages that the output has, by the same ids


def test_printed_answer_that_is_not_recorded_yet_is_billed() -> None:
    usage = read_usage([record("a", 10)], started(printed("a", 10), printed("b", 7, cost_usd=0.25)))

    assert usage.tokens == Tokens(200, 17, 60, 8)
    assert usage.cost_usd == pytest.approx((3 * (100 + 3 + 5) + 15 * 10) / 1e6 + 0.25)
    assert (usage.source, usage.complete) == (UsageSource.SESSION_FILES, True)


def test_answer_that_is_printed_and_recorded_is_billed_once_with_the_greater_count() -> None:
    for recorded, seen, whole in ((45, 1, True), (1, 45, False)):
        lines = [record("a", recorded, whole=whole)]
        usage = read_usage(lines, started(printed("a", seen, final=not whole)))

        assert usage.tokens == Tokens(100, 45, 30, 4)
        assert usage.complete


def test_answer_under_way_is_billed_as_far_as_it_was_printed_and_marked() -> None:
    usage = read_usage([record("a", 10)], started(printed("b", 1, final=False)))

    assert usage.tokens == Tokens(200, 11, 60, 8)
    assert not usage.complete


def test_output_alone_is_enough_if_the_files_are_gone() -> None:
    usage = read_usage(
        [], started(printed("a", 10, final=False), TokenUsage(SONNET, Tokens(0, 5), True, answer="a"))
    )

    assert (usage.tokens, usage.complete) == (Tokens(100, 15, 30, 4), True)


def test_tool_that_asks_a_model_itself_may_have_asked_it_before_its_answer_was_recorded() -> None:
    state = started(printed("a", 10), ToolStarted("toolu_1", "WebFetch"))

    assert not read_usage([], state).complete


# -- a report that is not the agent's last word


@pytest.mark.parametrize(
    ("code", "error", "reads"),
    [
        (0, False, False),
        (1, True, False),
        (1, False, True),
        (137, False, True),
        (-9, True, True),
        (None, False, True),
    ],
)
def test_agent_that_did_not_exit_as_it_reported_has_its_messages_counted(
    code: int | None, error: bool, reads: bool
) -> None:
    state = started(printed("a", 10), printed("b", 7))
    report = Report("success", is_error=error, by_model={SONNET: ModelUsage(Tokens(200, 17, 60, 8), 0.5)})
    state.apply([TurnCompleted(report)])

    assert ClaudeCode().judgement(state, Exit(code)).read_session_files is reads


def test_answers_after_the_report_are_billed_and_those_before_it_once() -> None:
    state = started(printed("a", 10))
    report = Report("success", by_model={SONNET: ModelUsage(Tokens(100, 10, 30, 4), 0.5)}, num_turns=1)
    state.apply([TurnCompleted(report)])
    agent = ClaudeCode()

    assert agent.session_usage([record("a", 10)], state) == Usage(report.by_model, UsageSource.RESULT)
    more = agent.session_usage([record("a", 10), record("b", 7)], state)
    assert (more.tokens, more.source) == (Tokens(200, 17, 60, 8), UsageSource.SESSION_FILES)


def test_models_are_kept_apart_and_priced() -> None:
    usage = read_usage([record("a", 10), record("b", 10, model="claude-haiku-4-5")], TurnState())

    assert set(usage.by_model) == {SONNET, "claude-haiku-4-5"}
    assert usage.by_model[SONNET].cost_usd == pytest.approx((3 * (100 + 3 + 5) + 15 * 10) / 1e6)
    assert usage.by_model["claude-haiku-4-5"].cost_usd == pytest.approx((1 * (100 + 3 + 5) + 5 * 10) / 1e6)


def test_cache_that_is_kept_for_an_hour_costs_more() -> None:
    usage = read_usage([record("a", 0, long_lived=4)], TurnState())

    assert usage.cost_usd == pytest.approx(3 * (100 + 3 + 8) / 1e6)


def test_model_without_a_price_makes_the_cost_unknown() -> None:
    usage = read_usage([record("a", 10), record("b", 10, model="claude-next")], TurnState())

    assert usage.by_model["claude-next"].cost_usd is None
    assert usage.cost_usd is None


def test_price_of_the_report_holds_where_it_counted_the_same() -> None:
    recording = load("2.1.330/d5_unknown_priced")
    state = recording.folded().state
    assert state.report is not None

    usage = read_usage(recording.session_lines, state)

    assert usage.cost_usd == state.report.by_model["claude-nope-9"].cost_usd is not None


def test_made_up_messages_are_left_out() -> None:
    assert read_usage([record("a", 10, model="<synthetic>")], TurnState()).by_model == {}


def test_message_that_broke_off_is_counted_and_marked() -> None:
    usage = read_usage([record("a", 10), record("b", 1, whole=False)], TurnState())

    assert usage.tokens.output_tokens == 11
    assert not usage.complete


def test_message_that_the_stream_saw_and_the_files_lack_is_marked() -> None:
    lines = load("b_agentic_steps").lines
    state = folded(lines, Exit(0)).state

    assert not read_usage([record("a", 10)], state).complete


def test_request_in_flight_is_marked() -> None:
    state = folded(load("n_SIGTERM_midstream").lines, Exit(143)).state

    assert state.awaits_answer
    assert not read_usage([record("a", 10)], state).complete


@pytest.mark.parametrize(
    "damaged",
    [
        record("b", 7)[:-30],
        b"",
        b"null",
        b"[]",
        b'"assistant"',
        b'{"type":"assistant"}',
        b'{"type":"assistant","message":5}',
        b'{"type":"assistant","message":{"id":"b","model":"m"}}',
        b'{"type":"assistant","message":{"id":"b","model":"m","usage":[]}}',
        b'{"type":"assistant","message":{"id":"b","model":"m","usage":{"input_tokens":"7"}}}',
        b'{"type":"assistant","message":{"id":["b"],"model":"m","usage":{}}}',
        b'{"type":"user","message":{"content":"\\"assistant\\""}}',
        b"\xff\xfe assistant",
    ],
)
def test_damaged_record_is_passed_over(damaged: bytes) -> None:
    assert read_usage([record("a", 10), damaged], TurnState()).tokens == Tokens(100, 10, 30, 4)


@pytest.mark.parametrize("version", ["2.1.197", "2.1.330"])
def test_killed_in_a_tool_is_exact_to_the_token(version: str) -> None:
    recording = load(f"{version}/n_SIGKILL_midtool")
    usage = read_usage(recording.session_lines, recording.folded().state)

    assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill
    assert usage.complete


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        (SONNET, 3.0),
        ("claude-sonnet-4-5-20250929", 3.0),
        ("claude-sonnet-4-5@20250929", 3.0),
        ("claude-opus-4-8", 5.0),
        ("claude-haiku-4-5", 1.0),
        ("claude-nope-9", None),
        ("claude-sonnet-4-5-turbo", None),
    ],
)
def test_price_of_a_million_input_tokens(model: str, cost: float | None) -> None:
    assert cost_usd(model, Tokens(1_000_000)) == cost


def test_sum_with_an_unpriced_part_is_unpriced() -> None:
    priced, unpriced = ModelUsage(Tokens(1), 0.5), ModelUsage(Tokens(2))

    assert priced + unpriced == ModelUsage(Tokens(3), None)
    assert priced + priced == ModelUsage(Tokens(2), 1.0)


@pytest.mark.parametrize(
    ("name", "complete"),
    [
        ("2.1.197/n_SIGINT_midtool", True),
        ("2.1.330/n_SIGINT_midtool", True),
        ("2.1.330/n_SIGINT_midstream", False),
        ("2.1.330/n_SIGINT_subagent_midstream", False),
    ],
)
def test_interrupted_agent_that_leaves_without_its_last_word(name: str, complete: bool) -> None:
    """As Claude Code 2.1.330 does now and then. Amid a tool, no answer of its model is under way."""
    recording = load(name)
    lines = [line for line in recording.lines if not line.startswith(b'{"type":"result"')]
    usage = read_usage(recording.session_lines, folded(lines, Exit(0)).state)

    assert usage.complete is complete
    if complete:
        assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill


def said(text: str, **fields: object) -> bytes:
    body = json.loads(record("a", 1, whole=bool(fields.pop("whole", True))))
    body["message"]["content"] = [{"type": "text", "text": text}]
    body["message"].update(fields.pop("message", {}))
    return json.dumps(body | fields).encode()


USER = json.dumps({"type": "user", "message": {"role": "user", "content": "do it"}}).encode()


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ([USER, said("done"), b'{"type":"cost-state","assistant":1}'], "done"),
        ([USER, said("done"), said("of a subagent", isSidechain=True)], "done"),
        ([USER, said("a tool first", message={"stop_reason": "tool_use"}), USER, said("done")], "done"),
        ([USER, said("a tool first", message={"stop_reason": "tool_use"})], None),
        ([USER, said("cut off", whole=False)], None),
        ([USER, said("done"), USER], None),
        ([USER, said("done"), b'{"type":"assistant","mess'], None),
        ([USER, said("API Error", message={"model": "<synthetic>"})], None),
        ([], None),
    ],
)
def test_answer_is_what_the_turn_ends_with(lines: list[bytes], answer: str | None) -> None:
    assert final_answer(lines) == answer


@pytest.mark.parametrize("name", ["2.1.197/a_parallel", "2.1.330/a_parallel"])
def test_success_that_could_not_be_printed_is_found_in_the_session_file(name: str) -> None:
    recording = load(name)
    report = recording.folded().state.report
    cut = folded(recording.lines[:-1], Exit(1))
    assert report is not None
    assert cut.kind == "port_exit"
    assert cut.judgement.final_answer is not None
    assert cut.judgement.final_answer(recording.session_lines) == report.text


def test_no_answer_is_looked_for_after_a_signal_or_a_report() -> None:
    recording = load("2.1.330/a_parallel")
    assert folded(recording.lines[:-1], Exit(143)).judgement.final_answer is None
    assert folded(recording.lines, Exit(1)).judgement.final_answer is None

"""What no recording shows, derived by hand from one that comes close."""

from __future__ import annotations

import copy
import json

import pytest

from adapters.contract import Exit
from adapters.errors import Retry
from adapters.usage import UsageSource
from tests.support.recordings.claude_code import DATA, Folded, decoded, encoded, folded, load

LINES = list(load("b_agentic_steps").lines)
RESULT = LINES[-1]


def derived(name: str, *, code: int | None = 1, **changes: object) -> Folded:
    """The recording with some fields of its result replaced, and of what the agent said of the API's error."""
    records = decoded(name)
    for record in records:
        if record["type"] == "result":
            record.update({key: value for key, value in changes.items() if key != "category"})
        if "error" in record and record["type"] == "assistant" and "category" in changes:
            record["error"] = changes["category"]
    return folded(encoded(records), Exit(code))


# -- the end of the process


@pytest.mark.parametrize("code", [-9, 137, -15, 143, -1, 129, -2, 130])
def test_killed_before_its_result_is_cancelled_and_its_usage_read_from_the_session_files(code: int) -> None:
    judged = folded(LINES[:-1], Exit(code))

    assert judged.kind == "turn_cancelled"
    assert judged.usage.source is UsageSource.STREAM
    assert judged.judgement.read_session_files


@pytest.mark.parametrize("code", [-11, 139, -6, 134, 1, 70])
def test_crashed_is_an_exit_of_its_own_and_tried_again(code: int) -> None:
    judged = folded(LINES[:-1], Exit(code, "Segmentation fault\n"))

    assert judged.kind == "port_exit"
    assert judged.judgement.error is not None
    assert judged.judgement.error.retry is Retry.BACKOFF
    assert "Segmentation fault" in judged.judgement.error.message


@pytest.mark.parametrize("code", [126, 127])
def test_shell_that_finds_no_agent_says_so(code: int) -> None:
    assert folded([], Exit(code, "sh: claude: not found")).kind == "agent_not_found"


def test_exit_status_127_of_a_running_agent_is_no_missing_agent() -> None:
    assert folded(LINES[:-1], Exit(127)).kind == "port_exit"


def test_lost_exit_status_is_a_lost_host_unless_the_result_is_there() -> None:
    assert folded(LINES[:-1], Exit(None)).kind == "host_lost"
    assert folded(LINES, Exit(None)).kind == "completed"


def test_success_and_then_a_failing_exit_is_no_success() -> None:
    assert folded(LINES, Exit(1)).kind == "port_exit"


def test_no_result_and_exit_0_is_no_success_and_not_tried_again() -> None:
    judged = folded(LINES[:-1], Exit(0))

    assert judged.kind == "agent_not_understood"
    assert judged.judgement.error is not None
    assert judged.judgement.error.retry is Retry.NEVER
    assert "version 2.1.197" in judged.judgement.error.message
    assert "without a result" in judged.judgement.error.message


def test_background_subagent_killed_after_the_first_result() -> None:
    lines = load("2.1.197/c2_subagent_background").lines
    at_work = next(index for index, line in enumerate(lines) if b'"task_updated"' in line)
    judged = folded([*lines[:at_work], lines[-1].replace(b"bg done", b"started it")], Exit(-9))

    assert judged.kind == "turn_cancelled"
    assert judged.state.subagents  # so its session files may lack a message
    assert judged.state.awaits_answer


# -- a stream that is not as it should be


@pytest.mark.parametrize("cut", [1, 20, 500, len(RESULT) - 1])
def test_truncated_result_is_malformed_and_no_result(cut: int) -> None:
    judged = folded([*LINES[:-1], RESULT[:cut]], Exit(-9))

    assert judged.kind == "turn_cancelled"
    assert judged.state.malformed == 1
    assert judged.usage.source is UsageSource.STREAM


def test_garbage_between_the_lines_changes_nothing() -> None:
    garbage = [b"npm warn deprecated", b"\x1b[2J", b"[1, 2]", b"null", b"\xff\xfe\x00", b'{"type":']
    lines = [part for line in LINES for part in (line, *garbage)]

    judged = folded(lines, Exit(0))

    assert judged.kind == "completed"
    assert judged.usage == folded(LINES, Exit(0)).usage
    assert judged.state.malformed == len(garbage) * len(LINES)


@pytest.mark.parametrize("ending", [b"\r", b" ", b"\t "])
def test_white_space_at_the_end_of_lines_changes_nothing(ending: bytes) -> None:
    judged = folded([line + ending for line in load("m_partial_messages").lines], Exit(0))

    assert judged.state.malformed == 0
    assert judged.usage == load("m_partial_messages").folded().usage


def test_blank_lines_are_no_events() -> None:
    judged = folded([part for line in LINES for part in (b"", line, b"  ")], Exit(0))

    assert judged.state.malformed == 0
    assert judged.state.seen == load("b_agentic_steps").folded().state.seen


def test_lines_unknown_to_us_change_nothing() -> None:
    unknown = [b'{"type":"novelty","a":1}', b'{"type":"system","subtype":"novelty","content":"x"}', b"{}"]
    judged = folded([part for line in LINES for part in (line, *unknown)], Exit(0))

    assert judged.kind == "completed"
    assert judged.state.malformed == 0


# -- what the API said


@pytest.mark.parametrize(
    ("category", "kind", "retry"),
    [
        ("authentication_failed", "authentication_failed", Retry.NEVER),
        ("oauth_org_not_allowed", "authentication_failed", Retry.NEVER),
        ("billing_error", "out_of_tokens", Retry.NEVER),
        ("rate_limit", "rate_limited", Retry.BACKOFF),
        ("overloaded", "overloaded", Retry.BACKOFF),
        ("invalid_request", "invalid_request", Retry.NEVER),
        ("model_not_found", "invalid_request", Retry.NEVER),
        ("max_output_tokens", "turn_failed", Retry.NEVER),
        ("server_error", "api_unreachable", Retry.BACKOFF),
        ("unknown", "api_unreachable", Retry.BACKOFF),
    ],
)
def test_category_of_an_api_error_tells_its_kind(category: str, kind: str, retry: Retry) -> None:
    judged = derived("e_api_400", category=category, api_error_status=None, result="API Error: something")

    assert judged.kind == kind
    assert judged.judgement.error is not None
    assert judged.judgement.error.retry is retry


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request"),
        (401, "authentication_failed"),
        (402, "out_of_tokens"),
        (403, "authentication_failed"),
        (404, "invalid_request"),
        (413, "invalid_request"),
        (418, "turn_failed"),
        (429, "rate_limited"),
        (500, "api_unreachable"),
        (502, "api_unreachable"),
        (503, "overloaded"),
        (529, "overloaded"),
    ],
)
def test_status_of_an_api_error_tells_its_kind_where_the_category_does_not(status: int, kind: str) -> None:
    assert derived("e_api_400", category="unknown", api_error_status=status).kind == kind


def test_api_error_that_the_agent_got_over_is_forgotten() -> None:
    records = decoded("b_agentic_steps")
    failure = decoded("e2_api_400_credit")[1]
    records[-1].update(is_error=True, api_error_status=401, result="Failed to authenticate")
    judged = folded(encoded([records[0], failure, *records[1:]]), Exit(1))

    assert judged.kind == "authentication_failed"


def test_api_error_of_a_subagent_is_not_the_turns() -> None:
    records = decoded("b_agentic_steps")
    failure = decoded("e2_api_400_credit")[1]
    failure["parent_tool_use_id"] = "toolu_1"
    records[-1].update(is_error=True, subtype="success", api_error_status=None, result="odd")
    judged = folded(encoded([*records[:-1], failure, records[-1]]), Exit(1))

    assert judged.kind == "turn_failed"


def test_rejected_without_a_reset_time_is_retried_by_backoff_alone() -> None:
    records = decoded("2.1.197/k3_rejected")
    limit = next(record for record in records if record["type"] == "rate_limit_event")
    limit["rate_limit_info"] = {"status": "rejected"}
    judged = folded(encoded(records), Exit(1))

    assert judged.judgement.error is not None
    assert judged.judgement.error.retryable
    assert judged.judgement.error.retry_at is None


def test_used_up_balance_is_retried_once_its_reset_is_known() -> None:
    records = decoded("2.1.197/k3_rejected")
    failure = next(record for record in records if record["type"] == "assistant")
    failure["error"] = "billing_error"
    judged = folded(encoded(records), Exit(1))

    assert judged.kind == "out_of_tokens"
    assert judged.judgement.error is not None
    assert judged.judgement.error.retry_at == 1_795_300_000


# -- the result


@pytest.mark.parametrize(
    ("subtype", "kind"),
    [
        ("error_max_turns", "turn_failed"),
        ("error_max_budget_usd", "budget_exceeded"),
        ("error_max_structured_output_retries", "structured_output_missing"),
        ("error_during_execution", "turn_failed"),
        ("error_of_a_later_version", "turn_failed"),
    ],
)
def test_subtype_tells_the_kind(subtype: str, kind: str) -> None:
    judged = derived("b_agentic_steps", subtype=subtype, is_error=True, result=None, errors=["why"])

    assert judged.kind == kind
    assert judged.judgement.error is not None
    assert judged.judgement.error.message == "why"


@pytest.mark.parametrize("reason", ["aborted_streaming", "aborted_tools"])
def test_interrupt_is_a_cancel(reason: str) -> None:
    judged = derived(
        "b_agentic_steps", code=0, subtype="error_during_execution", is_error=True, terminal_reason=reason
    )

    assert judged.kind == "turn_cancelled"


def test_status_in_the_text_alone_tells_the_kind() -> None:
    """As 2.1.69 and older have it."""
    text = 'API Error: 400 {"type":"error","error":{"type":"invalid_request_error"}}'

    judged = derived("e_api_400", category="unknown", api_error_status=None, result=text)

    assert judged.kind == "invalid_request"


def test_refusal_is_told_as_one_whether_it_is_an_error_or_not() -> None:
    quiet = derived("b_agentic_steps", code=0, stop_reason="refusal", result="No.")
    loud = derived("b_agentic_steps", stop_reason="refusal", is_error=True, result="No.")

    for judged in (quiet, loud):
        assert judged.kind == "turn_failed"
        assert judged.judgement.error is not None
        assert "refused" in judged.judgement.error.message
        assert "No." in judged.judgement.error.message


def test_answer_that_ends_with_a_tool_call_is_whole_if_every_answer_is_in_the_account() -> None:
    assert derived("b_agentic_steps", code=0, stop_reason="tool_use").kind == "completed"


def test_report_whose_two_accounts_contradict_each_other_is_a_guess() -> None:
    usage = copy.deepcopy(decoded("b_agentic_steps")[-1]["usage"])
    assert isinstance(usage, dict)
    usage["output_tokens"] += 1

    judged = derived("b_agentic_steps", code=0, usage=usage)

    assert judged.kind == "completed"
    assert judged.usage.source is UsageSource.STREAM
    assert not judged.usage.complete
    assert judged.judgement.read_session_files


def test_report_that_misses_a_printed_message_is_a_guess_of_what_was_printed() -> None:
    judged = derived("b_agentic_steps", code=0, modelUsage={})

    assert judged.usage.source is UsageSource.STREAM
    assert judged.usage.tokens.prompt == sum(tokens.prompt for tokens in load("b_agentic_steps").bill.values())
    assert judged.usage.cost_usd is None  # unpriced is not free


def test_model_without_a_price_is_not_free() -> None:
    records = decoded("o1_first")
    used = records[-1]["modelUsage"]
    assert isinstance(used, dict)
    del used["claude-sonnet-4-5"]["costUSD"]

    judged = folded(encoded(records), Exit(0))

    assert judged.usage.source is UsageSource.RESULT
    assert judged.usage.cost_usd is None


# -- frames of a live process


def test_frames_of_an_sdk_session_are_read_like_any_stream() -> None:
    wire = [json.loads(line) for line in (DATA / "sdk_wire_hooks_mcp.jsonl").read_bytes().splitlines()]
    judged = folded(encoded([record["frame"] for record in wire if record["dir"] == "from_cli"]), Exit(0))

    assert judged.kind == "completed"
    assert judged.state.malformed == 0
    assert judged.usage.source is UsageSource.RESULT
    assert judged.state.text == "done"


def test_answers_to_control_requests_are_signs_of_life() -> None:
    judged = load("live_d_control").folded()

    assert judged.state.malformed == 0
    assert not judged.state.started


def test_three_prompts_in_one_process_are_billed_once() -> None:
    judged = load("live_a_three_turns").folded()

    assert len(judged.state.reports) == 3
    assert {model: used.tokens for model, used in judged.usage.by_model.items()} == load("live_a_three_turns").bill

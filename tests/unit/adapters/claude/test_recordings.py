"""Every recording is judged as an operator would, and its tokens are the API's bill or marked as a guess."""

from __future__ import annotations

import json

import pytest

from adapters.claude_code.prices import PRICES, cost_usd
from adapters.claude_code.session_files import read_usage
from adapters.usage import UsageSource
from tests.support.recordings.claude_code import DATA, VERSIONS, Recording, folded, load, names

# name: how it ended, and where its usage was read
EXPECTED = {
    "a_parallel_tools": ("completed", "result"),
    "b_agentic_steps": ("completed", "result"),
    "c_subagent": ("completed", "result"),
    "d3_model_404_fallback": ("completed", "result"),
    "d4_model_404": ("invalid_request", "result"),
    "d_fallback_529": ("completed", "result"),
    "e2_api_400_credit": ("out_of_tokens", "result"),
    "e4_tool_is_error": ("completed", "result"),
    "e5_max_tokens_stop": ("completed", "result"),
    "e_api_400": ("invalid_request", "result"),
    "f_max_turns": ("turn_failed", "result"),
    "g_max_budget": ("budget_exceeded", "result"),
    "h2_429_retry_after_then_ok": ("completed", "result"),
    "h4_500_then_ok": ("completed", "result"),
    "h5_529_forever": ("overloaded", "result"),
    "h7_stream_dropped": ("api_unreachable", "stream"),
    "h7b_stream_dropped_partial": ("api_unreachable", "stream"),
    "h7d_chunked_rst": ("api_unreachable", "result"),
    "h_429_then_ok": ("completed", "result"),
    "i3_no_api_key": ("authentication_failed", "result"),
    "i4_401_MAX_RETRIES_1": ("authentication_failed", "result"),
    "i5_401_MAX_RETRIES_0": ("authentication_failed", "result"),
    "i_401": ("authentication_failed", "result"),
    "j_conn_refused": ("api_unreachable", "result"),
    "k2_rate_limit_oauth_env": ("completed", "result"),
    "k_rate_limit_apikey": ("completed", "result"),
    "l2_json_schema_invalid_then_ok": ("completed", "result"),
    "l3_json_schema_never": ("structured_output_missing", "result"),
    "l5_json_schema_bad_schema": ("port_exit", "none"),
    "l_json_schema": ("completed", "result"),
    "live_a_three_turns": ("completed", "result"),
    "live_b_queued": ("completed", "result"),
    "live_d_control": ("turn_failed", "none"),
    "live_g_maxturns": ("turn_failed", "result"),
    "m2_partial_messages_min_delta": ("completed", "result"),
    "m3_partial_subagent": ("completed", "result"),
    "m_partial_messages": ("completed", "result"),
    "n4_SIGINT_at_startup": ("turn_cancelled", "none"),
    "n_SIGHUP_midstream": ("turn_cancelled", "stream"),
    "n_SIGINT_midstream": ("turn_cancelled", "stream"),
    "n_SIGINT_midtool": ("turn_cancelled", "result"),
    "n_SIGTERM_midstream": ("turn_cancelled", "stream"),
    "n_SIGTERM_midtool": ("turn_cancelled", "stream"),
    "o1_first": ("completed", "result"),
    "o2_resume": ("completed", "result"),
    "o2b_resume_again": ("completed", "result"),
    "o2d_resume_fork_with_sid": ("completed", "result"),
    "o2e_resume_plus_session_id": ("port_exit", "none"),
    "o3_resume_unknown": ("session_not_found", "result"),
    "o4_session_id_reused": ("session_in_use", "none"),
    "o4b_session_id_reused_other_cwd": ("completed", "result"),
    "o4c_session_id_not_uuid": ("port_exit", "none"),
    "o6_resume_no_persistence": ("completed", "result"),
    "p_perm_acceptEdits": ("completed", "result"),
    "p_perm_default": ("completed", "result"),
    "p_perm_dontAsk": ("completed", "result"),
    "q2_big_read": ("completed", "result"),
    "q5_prompt_200K_stdin": ("completed", "result"),
    "q6_argv_plus_stdin": ("completed", "result"),
    "q7_empty_stdin_no_prompt": ("port_exit", "none"),
    "r2_root_no_sandbox_default": ("completed", "result"),
    "r_root_no_sandbox": ("port_exit", "none"),
    "s2_other_cwd": ("session_not_found", "result"),
    "s3_other_home": ("session_not_found", "result"),
    "s4_copied": ("completed", "result"),
    "s6_live_first": ("completed", "result"),
    "s6_live_resume": ("completed", "result"),
    "x2_hook_events": ("completed", "result"),
    "x4_thinking": ("completed", "result"),
    "x6_slash_unknown": ("completed", "result"),
}


def test_the_table_names_every_recording() -> None:
    assert sorted(EXPECTED) == names()


@pytest.mark.parametrize("name", EXPECTED)
def test_recording_is_judged_as_expected(name: str) -> None:
    folded = load(name).folded()

    assert (folded.kind, folded.usage.source) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_observed_usage_equals_the_bill_and_the_rest_is_marked(name: str) -> None:
    recording = load(name)
    usage = recording.folded().usage

    if usage.source.observed:
        assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill
        assert usage.cost_usd == pytest.approx(_reported_cost(name))
    elif recording.bill:
        assert usage.source is UsageSource.STREAM
        assert not usage.complete


def _reported_cost(name: str) -> float:
    truth = json.loads((DATA / f"{name}.truth.json").read_bytes())
    return sum(float(used["cost"]) for used in (truth["extra"]["modelUsage"] or {}).values())


@pytest.mark.parametrize("name", EXPECTED)
def test_no_line_of_a_recording_is_malformed(name: str) -> None:
    assert load(name).folded().state.malformed == 0


@pytest.mark.parametrize("name", EXPECTED)
def test_guess_from_the_stream_has_the_right_prompt_tokens_of_what_was_printed(name: str) -> None:
    recording = load(name)
    state = recording.folded().state

    # Only requests that were never answered, and answers of which nothing was printed, are not in there.
    billed = sum(tokens.prompt for tokens in recording.bill.values())
    assert state.seen_tokens.prompt <= billed


# -- the same scenarios with both versions, with their session files

BOTH = [(version, name) for version in VERSIONS for name in names(version)]


@pytest.mark.parametrize(("version", "name"), BOTH)
def test_observed_usage_is_never_wrong(version: str, name: str) -> None:
    recording = load(f"{version}/{name}")
    usage = recording.folded().usage

    if usage.source.observed:
        assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill
        if set(recording.bill) <= set(PRICES):
            assert usage.cost_usd == pytest.approx(_cost(recording))


@pytest.mark.parametrize(("version", "name"), BOTH)
def test_session_files_are_exact_unless_they_say_that_something_is_missing(version: str, name: str) -> None:
    recording = load(f"{version}/{name}")
    usage = read_usage(recording.session_lines, recording.folded().state)

    tokens = {model: used.tokens for model, used in usage.by_model.items()}
    assert usage.source is UsageSource.SESSION_FILES
    assert tokens == recording.bill or not usage.complete
    for model, counted in tokens.items():
        assert counted.prompt <= recording.bill[model].prompt
        assert counted.output_tokens <= recording.bill[model].output_tokens


def _cost(recording: Recording) -> float:
    return sum(cost_usd(model, tokens) or 0.0 for model, tokens in recording.bill.items())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "kind", "source"),
    [
        ("a_parallel", "completed", "result"),
        ("c2_subagent_background", "completed", "result"),  # two results; the last one holds
        ("c3_subagent_haiku", "completed", "result"),  # two models
        ("c4_subagent_error", "completed", "result"),  # its caller dealt with it
        ("c5_two_subagents", "completed", "result"),
        ("d5_unknown_priced", "completed", "result"),
        ("e2_credit", "out_of_tokens", "result"),
        ("e3_prompt_too_long", "invalid_request", "result"),
        ("e5_max_tokens_forever", "turn_failed", "result"),
        ("e6_413", "invalid_request", "result"),
        ("e7_refusal", "turn_failed", "result"),
        ("e7b_refusal_nodetails", "turn_failed", "result"),
        ("e8_context_window_stop", "turn_failed", "result"),
        ("f_max_turns", "turn_failed", "result"),
        ("g_budget", "budget_exceeded", "result"),
        ("h5_529", "overloaded", "result"),
        ("h6b_500_after_tool", "api_unreachable", "result"),
        ("h7_cut_forever_after_block", "api_unreachable", "stream"),
        ("h7_cut_forever_after_tool", "api_unreachable", "stream"),  # 197: its stop_reason is the one before
        ("h7_cut_then_ok", "completed", "stream"),  # the answer that broke off is billed, and in no account
        ("h7_error_then_ok", "completed", "stream"),
        ("h7_reset_then_ok", "completed", "stream"),
        ("h7_reset_forever_after_tool", "api_unreachable", "stream"),
        ("h8_429_apikey", "rate_limited", "result"),
        ("h9_503", "overloaded", "result"),
        ("h10_429_after_tool_then_ok", "completed", "result"),
        ("i2_403", "authentication_failed", "result"),
        ("i6_403_org", "authentication_failed", "result"),
        ("i7_401_oauth", "authentication_failed", "result"),
        ("k3_rejected", "rate_limited", "result"),
        ("k4_warning_then_rejected", "rate_limited", "result"),
        ("l_schema_ok", "completed", "result"),
        ("l3_schema_never", "structured_output_missing", "result"),
        ("live_c_interrupt_then_ok", "completed", "stream"),  # the first answer was interrupted
        ("live_c2_interrupt", "turn_cancelled", "stream"),
        ("live_f_error_then_ok", "completed", "result"),  # the first prompt met a 401, the second an answer
        ("n_SIGINT_midstream", "turn_cancelled", "stream"),
        ("n_SIGINT_midtool", "turn_cancelled", "result"),
        ("n_SIGINT_subagent_midstream", "turn_cancelled", "stream"),
        ("n_SIGTERM_midstream", "turn_cancelled", "stream"),
        ("n_SIGTERM_midtool", "turn_cancelled", "stream"),
        ("n_SIGHUP_midstream", "turn_cancelled", "stream"),
        ("n_SIGKILL_midstream", "turn_cancelled", "stream"),
        ("n_SIGKILL_first_message", "turn_cancelled", "none"),
        ("o2_resume", "completed", "result"),  # 330 counts the whole session in modelUsage
        ("o2b_resume", "completed", "result"),
        ("o4_reuse", "session_in_use", "none"),
        ("x6_slash_cost", "completed", "result"),
        ("x6_slash_nl", "completed", "result"),
        ("x7_bg_bash", "completed", "result"),
        ("x9_read_cut", "completed", "result"),
    ],
)
def test_scenario_is_judged_the_same_on_both_versions(version: str, name: str, kind: str, source: str) -> None:
    folded = load(f"{version}/{name}").folded()

    assert (folded.kind, folded.usage.source) == (kind, source)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        # 330 asks again where 197 gives up
        ("h7_error_after_block_then_ok", ("overloaded", "stream"), ("completed", "result")),
        # 330 mended its account of what broke off
        ("h7_error_forever_after_tool", ("overloaded", "stream"), ("api_unreachable", "result")),
        ("l4_schema_always_bad", ("structured_output_missing", "stream"), ("structured_output_missing", "result")),
        # 330 finds a session from another directory
        ("s2_resume_other_cwd", ("session_not_found", "result"), ("completed", "result")),
    ],
)
def test_versions_that_behave_differently_are_both_judged_right(
    name: str, old: tuple[str, str], new: tuple[str, str]
) -> None:
    judged = [load(f"{version}/{name}").folded() for version in VERSIONS]

    assert [(folded.kind, folded.usage.source) for folded in judged] == [old, new]


@pytest.mark.parametrize("name", ["k3_rejected", "k4_warning_then_rejected"])
@pytest.mark.parametrize("version", VERSIONS)
def test_rejected_login_is_retried_when_its_limit_resets(version: str, name: str) -> None:
    error = load(f"{version}/{name}").folded().judgement.error

    assert error is not None
    assert error.retryable
    assert error.retry_at == 1_795_300_000


@pytest.mark.parametrize("version", VERSIONS)
def test_result_that_is_printed_twice_is_booked_once(version: str) -> None:
    for name in names(version):
        recording = load(f"{version}/{name}")
        twice = folded([*recording.lines, *recording.lines[-1:]], recording.exit).usage
        assert twice == recording.folded().usage, name

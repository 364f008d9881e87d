"""What the real Gemini CLI printed folds to what its API billed, and is judged by its own rules."""

from __future__ import annotations

import pytest

from adapters import events as ev
from adapters.contract import Exit
from adapters.turn_state import TurnState, fold
from adapters.usage import Tokens, UsageSource
from tests.support.recordings.gemini import agent, folded, load, names

KINDS = {
    "404": "invalid_request",
    "500": "api_unreachable",
    "approval-autoedit": "completed",
    "approval-default": "completed",
    "atsign": "completed",
    "auth": "authentication_failed",
    "auth401": "authentication_failed",
    "badflag": "port_exit",
    "badformat": "port_exit",
    "down": "api_unreachable",
    "killed-answer": "agent_not_understood",  # exit status 0, and nobody can say whether the answer was whole
    "killed-tool": "port_exit",  # exit status 0, too, but it never ends there by itself
    "loop-recovered": "completed",
    "nokey": "authentication_failed",
    "quota": "out_of_tokens",
    "ratelimit": "rate_limited",
    "resume": "completed",
    "sessionid": "completed",
    "sessionid2": "session_in_use",
    "slash": "completed",
    "slashcmd": "completed",
    "stdin-only": "completed",
    "stdin-plus-p": "completed",
    "tool-prompt": "completed",
    "tools": "completed",
    "web-search": "completed",
}
TOLD_IN_SESSION_FILES = ("killed-answer", "killed-tool", "loop-recovered", "tool-prompt", "web-search")


def test_every_recording_is_judged() -> None:
    assert {name: folded(load(name)).kind for name in names()} == KINDS


@pytest.mark.parametrize("name", sorted(KINDS.keys() - set(TOLD_IN_SESSION_FILES)))
def test_recording_folds_to_its_bill(name: str) -> None:
    recording = load(name)
    usage = folded(recording).judgement.usage
    assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill
    assert all(used.cost_usd is not None for used in usage.by_model.values())
    assert usage.source is (UsageSource.RESULT if recording.lines else UsageSource.NONE)


def test_answer_that_repeated_itself_is_in_no_account_which_says_so() -> None:
    """The turn goes on after it, and nothing that is printed tells of it."""
    recording = load("loop-recovered")
    usage = agent().session_usage(recording.session_lines, folded(recording).state)
    missing = recording.bill["gemini-2.5-pro"] - usage.tokens
    assert (missing, usage.source, usage.complete) == (Tokens(1094, 194, 388), UsageSource.RESULT, False)
    unmarked = [line for line in recording.session_lines if b"Potential loop" not in line]
    assert agent().session_usage(unmarked, folded(recording).state).complete


def test_answer_that_repeated_itself_is_missed_where_nothing_else_was_billed() -> None:
    """As 0.61.0 left it when the API refused what it asked next."""
    state, nothing = TurnState(), RESULT % (b"error", b"[API Error: Bad gateway]", 0, 0)
    fold(
        agent().parser(),
        state,
        [load("tools").lines[0], nothing.replace(b'"output_tokens":1', b'"output_tokens":0')],
    )
    judgement = agent().judgement(state, Exit(246))
    looped = next(line for line in load("loop-recovered").session_lines if b"Potential loop" in line)
    for lines, whole in (([], True), ([looped], False)):
        assert judgement.usage_with(agent().session_usage(lines, state)).complete is whole


def test_what_tools_of_the_api_have_read_is_input() -> None:
    recording = load("tool-prompt")
    turn = folded(recording)
    assert (turn.judgement.usage.tokens, turn.judgement.usage.complete) == (Tokens(2021, 331, 442), True)
    usage = agent().session_usage(recording.session_lines, turn.state)
    assert ({model: used.tokens for model, used in usage.by_model.items()}, usage.complete) == (
        recording.bill,
        True,
    )
    assert usage.cost_usd == agent().price("gemini-2.5-pro", usage.tokens)


def test_what_a_search_has_read_cannot_be_told_from_its_thoughts() -> None:
    recording = load("web-search")
    usage = agent().session_usage(recording.session_lines, folded(recording).state)
    assert usage.by_model["gemini-2.5-pro"].tokens == recording.bill["gemini-2.5-pro"]
    assert usage.tokens.total == sum(tokens.total for tokens in recording.bill.values())
    assert not usage.complete


def test_account_without_session_files_stands_and_is_not_taken_for_whole() -> None:
    turn = folded(load("tools"))
    usage = agent().session_usage((), turn.state)
    assert (usage.by_model, usage.complete) == (turn.judgement.usage.by_model, False)


def test_turn_killed_amid_a_tool_is_billed_from_its_session_files() -> None:
    recording = load("killed-tool")
    turn = folded(recording)
    assert turn.judgement.read_session_files
    usage = agent().session_usage(recording.session_lines, turn.state)
    assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill
    assert (usage.source, usage.complete) == (UsageSource.SESSION_FILES, True)


def test_turn_killed_amid_an_answer_misses_the_bill_of_that_answer_and_says_so() -> None:
    recording = load("killed-answer")
    usage = agent().session_usage(recording.session_lines, folded(recording).state)
    assert usage.tokens == Tokens(1001, 63, 501)
    assert not usage.complete


def test_half_a_record_at_the_end_of_a_session_file_costs_nothing_but_itself() -> None:
    recording = load("killed-tool")
    state = folded(recording).state
    cut = [*recording.session_lines[:-2], recording.session_lines[-2][:200]]
    usage = agent().session_usage(cut, state)
    assert (usage.tokens, usage.complete) == (Tokens(1000, 62, 500), False)


def test_tool_that_asks_a_model_itself_leaves_the_session_files_short() -> None:
    recording = load("killed-tool")
    lines = [line.replace(b"run_shell_command", b"google_web_search") for line in recording.session_lines]
    assert not agent().session_usage(lines, folded(recording).state).complete


def test_small_model_that_chooses_another_is_in_no_session_file() -> None:
    """As 0.61.0 names it in its first event where it asks `gemini-3.5-flash-lite` which model shall answer."""
    recording = load("killed-tool")
    state = TurnState()
    fold(agent().parser(), state, [recording.lines[0].replace(b"gemini-2.5-pro", b"auto"), *recording.lines[1:]])
    assert not agent().session_usage(recording.session_lines, state).complete


@pytest.mark.parametrize(("name", "whole"), [("500", True), ("down", False)])
def test_what_the_api_refused_it_has_not_billed(name: str, *, whole: bool) -> None:
    assert folded(load(name)).judgement.usage.complete is whole


def test_session_files_do_not_make_a_broken_turns_usage_whole() -> None:
    state = TurnState()
    fold(
        agent().parser(), state, [load("tools").lines[0], RESULT % (b"error", b"Loop detected", 300_002, 300_000)]
    )
    judgement = agent().judgement(state, Exit(0))
    assert (judgement.usage.complete, judgement.read_session_files) == (False, True)
    assert not agent().session_usage((), state).complete


def test_output_in_another_format_is_no_whole_account() -> None:
    state = TurnState()
    fold(agent().parser(), state, [b"{", b'  "session_id": "x",', b'  "stats": {}', b"}"])
    assert not agent().judgement(state, Exit(0)).usage.complete


@pytest.mark.parametrize("name", ["tools", "ratelimit", "auth"])
def test_result_that_is_printed_twice_counts_once(name: str) -> None:
    recording = load(name)
    state = TurnState()
    fold(agent().parser(), state, [*recording.lines, recording.lines[-1]])
    usage = agent().judgement(state, recording.exit).usage
    assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill


def test_events_of_a_turn_with_tools() -> None:
    turn = folded(load("tools"))
    assert [event.name for event in turn.events if event is not ev.HEARTBEAT] == [
        "session_started", "answer_begun", "text", "tool_started", "tool_finished", "tool_started",
        "tool_finished", "answer_begun", "text", "turn_completed",
    ]  # fmt: skip
    assert turn.state.text == "Done: the stub turn finished."
    assert [event.summary for event in turn.events if isinstance(event, ev.ToolStarted)] == [
        "echo hello-from-tool > made.txt; cat made.txt",
        "ls /nonexistent-dir-xyz",
    ]
    assert (turn.state.session_id, turn.state.model) == ("c6f3c0b5-2b5e-467a-a78b-952384c9a057", "gemini-2.5-pro")


def test_what_a_tool_gave_is_told() -> None:
    events = folded(load("tools")).events
    outputs = [event.output for event in events if isinstance(event, ev.ToolFinished)]
    assert outputs == ["hello-from-tool", "ls: cannot access '/nonexistent-dir-xyz': No such file or directory"]


def test_refused_tool_is_told_with_its_error() -> None:
    events = folded(load("approval-default")).events
    errors = [event.error for event in events if isinstance(event, ev.ToolFinished)]
    assert len(errors) == 2
    assert all(error is not None and error.startswith('Tool "run_shell_command" not found') for error in errors)


def test_tools_are_timed_when_they_are_seen_live() -> None:
    parser, state, lines = agent().parser(), TurnState(), load("tools").lines
    events = [event for at, line in enumerate(lines) for event in fold(parser, state, [line], float(at))]
    assert [event.duration_ms for event in events if isinstance(event, ev.ToolFinished)] == [1000, 1000]


RESULT = (
    b'{"type":"result","status":"%s","error":{"type":"x","message":"%s"},"stats":{"duration_ms":5,"models":'
    b'{"gemini-2.5-pro":{"total_tokens":%d,"input_tokens":%d,"output_tokens":1,"cached":0,"input":1}}}}'
)


@pytest.mark.parametrize(
    ("message", "code", "kind"),
    [
        (b"Reached max session turns for this session.", 53, "turn_failed"),
        (b"[API Error: The model is overloaded.]", 247, "overloaded"),
        (b"[API Error: Bad gateway]", 246, "api_unreachable"),
        (b"[API Error: Forbidden]", 147, "authentication_failed"),
        (b"Operation cancelled.", 130, "turn_cancelled"),
        (b"[API Error: terminated]", 1, "api_unreachable"),
        (b"something new", 1, "turn_failed"),
    ],
)
def test_failure_that_it_reports(message: bytes, code: int, kind: str) -> None:
    state = TurnState()
    fold(agent().parser(), state, [load("tools").lines[0], RESULT % (b"error", message, 11, 10)])
    judgement = agent().judgement(state, Exit(code))
    assert judgement.error is not None
    assert judgement.error.kind == kind
    assert judgement.usage.tokens == Tokens(10, 1)


STDERR = (
    "Error when talking to Gemini API Full report available at: /tmp/r.json _ApiError: no\n  status: 500\n}\n"
    "Attempt 1 failed: %(message)s. Max attempts reached\n"
    "Error when talking to Gemini API Full report available at: /tmp/r.json %(error)s: %(message)s\n"
    "    at process.processTicksAndRejections (node:internal/process/task_queues:105:5) {\n%(facts)s\n}\n"
)
UNNAMED = b"[API Error: An unknown error occurred.]"


@pytest.mark.parametrize(
    ("error", "message", "facts", "kind"),
    [
        ("TerminalQuotaError", "You have exhausted your daily quota on this model.",
         "  cause: {\n    code: 429,\n    details: []\n  }", "out_of_tokens"),
        ("RetryableQuotaError", "Please wait.", "  cause: { code: 429, message: 'Please wait.' }", "rate_limited"),
        ("RetryableQuotaError", "The model is overloaded.", "  cause: { code: 503, details: [] }", "overloaded"),
        ("ModelNotFoundError", "models/x is not found", "  code: 404", "invalid_request"),
        ("NewError", "something new", "  cause: new", "turn_failed"),
    ],
)  # fmt: skip
def test_failure_that_stderr_alone_names(error: str, message: str, facts: str, kind: str) -> None:
    """As 0.45.2 and 0.52.0 printed it."""
    state = TurnState()
    fold(agent().parser(), state, [load("tools").lines[0], RESULT % (b"error", UNNAMED, 11, 10)])
    stderr = STDERR % {"error": error, "message": message, "facts": facts}
    judgement = agent().judgement(state, Exit(1, stderr))
    assert judgement.error is not None
    assert (judgement.error.kind, judgement.usage.complete) == (kind, True)
    assert message in judgement.error.message


@pytest.mark.parametrize(
    ("said", "stderr"),
    [
        (UNNAMED, ""),
        (UNNAMED, "code: 429"),
        (b"Reached its goal in another way", STDERR % {"error": "E", "message": "m", "facts": "  code: 429"}),
    ],
)
def test_stderr_that_names_no_refusal_is_no_evidence_of_one(said: bytes, stderr: str) -> None:
    state = TurnState()
    fold(agent().parser(), state, [load("tools").lines[0], RESULT % (b"error", said, 11, 10)])
    error = agent().judgement(state, Exit(1, stderr)).error
    assert error is not None
    assert (error.kind, error.retryable) == ("turn_failed", False)


@pytest.mark.parametrize(
    ("lines", "kind", "retryable"),
    [
        (load("killed-tool").lines, "port_exit", True),
        (load("tools").lines[:2], "port_exit", True),
        ((*load("tools").lines[:2], b'{"type":"answer","text":"done"}'), "agent_not_understood", False),
        ((*load("tools").lines[:2], b'{"type":"message","role":"model"}'), "agent_not_understood", False),
        ((*load("tools").lines[:2], b"all done"), "agent_not_understood", False),
        ((*load("killed-tool").lines, b'{"type":"tool_output"}'), "agent_not_understood", False),
        ((b'{"type":"progress"}', *load("killed-tool").lines), "port_exit", True),
    ],
)
def test_end_without_a_result_is_tried_again_only_where_nothing_may_have_been_answered(
    lines: tuple[bytes, ...], kind: str, *, retryable: bool
) -> None:
    state = TurnState()
    fold(agent().parser(), state, lines)
    error = agent().judgement(state, Exit(0)).error
    assert error is not None
    assert (error.kind, error.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nokey", "When using Gemini API, you must specify the GEMINI_API_KEY environment variable."),
        ("sessionid2", "already exists. Use --resume to resume it"),
    ],
)
def test_what_it_complains_of_is_told(name: str, said: str) -> None:
    error = folded(load(name)).judgement.error
    assert error is not None
    assert said in error.message


@pytest.mark.parametrize(
    ("severity", "message", "whole"),
    [("error", "Maximum session turns exceeded", True), ("warning", "Loop detected, stopping execution", False)],
)
def test_success_after_it_has_given_up_is_none(severity: str, message: str, *, whole: bool) -> None:
    """As 0.61.0 printed it. An answer that repeats itself is broken off and stands in no account."""
    state = TurnState()
    gave_up = b'{"type":"error","severity":"%s","message":"%s"}' % (severity.encode(), message.encode())
    done = RESULT.replace(b'"error":{"type":"x","message":"%s"},', b"") % (b"success", 11, 10)
    fold(agent().parser(), state, [load("tools").lines[0], gave_up, done])
    judgement = agent().judgement(state, Exit(0))
    assert judgement.error is not None
    assert (judgement.error.kind, judgement.error.message) == ("turn_failed", message)
    assert judgement.usage.complete is whole
    assert agent().session_usage([b'{"kind":"main"}'], state).complete is whole


def test_error_after_which_it_goes_on_is_no_failure() -> None:
    parser, state, lines = agent().parser(), TurnState(), load("tools").lines
    warning = b'{"type":"error","severity":"warning","message":"something was odd"}'
    fold(parser, state, [*lines[:2], warning, *lines[2:]])
    assert agent().judgement(state, Exit(0)).error is None


@pytest.mark.parametrize(
    "said",
    [b"The model returned an empty response with no text.", b"Model stream ended without a finish reason."],
)
def test_answer_that_is_none_is_tried_again(said: bytes) -> None:
    state = TurnState()
    empty = b'{"type":"error","severity":"error","message":"%s"}' % said
    done = RESULT.replace(b'"error":{"type":"x","message":"%s"},', b"") % (b"error", 11, 10)
    fold(agent().parser(), state, [load("tools").lines[0], empty, done])
    error = agent().judgement(state, Exit(0)).error
    assert error is not None
    assert (error.kind, error.retryable) == ("api_unreachable", True)


@pytest.mark.parametrize(
    ("end", "kind", "retryable"),
    [
        (Exit(42, "Error resuming session: Invalid session identifier"), "session_not_found", False),
        (Exit(55, "not a trusted directory"), "invalid_workspace_cwd", False),
        (Exit(127, "gemini: not found"), "agent_not_found", False),
        (Exit(0), "turn_failed", False),
        (Exit(-9), "turn_cancelled", False),
        (Exit(None), "host_lost", True),
    ],
)
def test_end_before_any_event(end: Exit, kind: str, *, retryable: bool) -> None:
    error = agent().judgement(TurnState(), end).error
    assert error is not None
    assert (error.kind, error.retryable) == (kind, retryable)


def test_prompts_that_may_have_been_long_are_priced_one_by_one() -> None:
    """gemini-2.5-pro costs more beyond 200,000 tokens: their sum does not tell which request was that long."""
    state = TurnState()
    fold(agent().parser(), state, [load("tools").lines[0], RESULT % (b"success", b"", 300_002, 300_000)])
    judgement = agent().judgement(state, Exit(0))
    assert (judgement.usage.cost_usd, judgement.read_session_files) == (None, True)
    answer = b'{"id":"%d","type":"gemini","model":"gemini-2.5-pro","tokens":{"input":150000,"output":1}}'
    usage = agent().session_usage([answer % 1, answer % 1, answer % 2], state)
    assert usage.source is UsageSource.RESULT
    assert usage.cost_usd == pytest.approx((300_000 * 1.25 + 2 * 10) / 1e6)
    usage = agent().session_usage([answer % 1], state)  # one is missing
    assert (usage.tokens, usage.cost_usd) == (Tokens(300_000, 2), None)


def test_answers_that_the_report_lacks_are_billed_and_marked() -> None:
    """As when something else printed the report, and the agent was killed."""
    state = TurnState()
    fold(agent().parser(), state, [load("tools").lines[0], RESULT % (b"success", b"", 11, 10)])
    answer = b'{"id":"%d","type":"gemini","model":"%s","tokens":{"input":10,"output":7}}'
    lines = [answer % (1, b"gemini-2.5-pro"), answer % (2, b"gemini-2.5-pro"), answer % (3, b"gemini-2.5-flash")]
    usage = agent().session_usage(lines, state)
    assert {model: used.tokens for model, used in usage.by_model.items()} == {
        "gemini-2.5-pro": Tokens(20, 14),
        "gemini-2.5-flash": Tokens(10, 7),
    }
    assert not usage.complete

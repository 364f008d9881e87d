"""Claude Code's lines, one by one: what each becomes."""

from __future__ import annotations

import json

import pytest

from adapters import events as ev
from adapters.claude_code.parser import ClaudeCodeParser
from adapters.turn_state import TurnState, fold
from adapters.usage import ModelUsage, Tokens

USAGE = {
    "input_tokens": 100,
    "output_tokens": 1,
    "cache_read_input_tokens": 30,
    "cache_creation_input_tokens": 4,
}
TOKENS = Tokens(100, 1, 30, 4)
ANSWER = ev.TokenUsage("claude-sonnet-4-5", TOKENS, answer="msg_1", cost_usd=pytest.approx(0.000339))


def line(**record: object) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def assistant(*content: dict[str, object], message: str = "msg_1", caller: str | None = None) -> bytes:
    body = {"id": message, "model": "claude-sonnet-4-5", "content": content, "usage": USAGE, "stop_reason": None}
    return line(type="assistant", message=body, parent_tool_use_id=caller)


def user(*content: dict[str, object] | str, caller: str | None = None) -> bytes:
    body = {"role": "user", "content": content[0] if isinstance(content[0], str) else content}
    return line(type="user", message=body, parent_tool_use_id=caller)


def call(tool: str, tool_use_id: str = "toolu_1", /, **arguments: object) -> dict[str, object]:
    return {"type": "tool_use", "id": tool_use_id, "name": tool, "input": arguments}


def answer(tool_use_id: str = "toolu_1", **fields: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": "ok", **fields}


def read(*lines: bytes) -> list[ev.Event]:
    """The numbered events of lines."""
    happened = fold(ClaudeCodeParser(), TurnState(), lines)
    return [event for event in happened if event is not ev.HEARTBEAT]


def init(version: str | None = "2.1.330") -> bytes:
    told = {} if version is None else {"claude_code_version": version}
    return line(type="system", subtype="init", session_id="s", **told)


# -- the reference's table of events, row by row


def test_init_starts_the_session() -> None:
    started = line(
        type="system", subtype="init", session_id="s", model="m", claude_code_version="2.1.330", tools=["Bash"]
    )

    assert read(started) == [ev.SessionStarted("s", "m", "2.1.330", expects_output=False)]


def test_init_with_the_tool_for_structured_output_expects_one() -> None:
    started = line(type="system", subtype="init", session_id="s", tools=["Bash", "StructuredOutput"])

    assert read(started) == [ev.SessionStarted("s", expects_output=True)]


def test_mcp_servers_that_are_not_there_are_told() -> None:
    servers = [{"name": "docs", "status": "failed"}, {"name": "web", "status": "connected"}, {}, "nonsense"]
    started = line(type="system", subtype="init", session_id="s", mcp_servers=servers)

    assert read(started)[1:] == [ev.Notification(ev.MCP_SERVER, "docs failed")]
    assert len(read(line(type="system", subtype="init", session_id="s", mcp_servers=7))) == 1


def test_api_retry_has_attempt_delay_and_status() -> None:
    retry = line(
        type="system",
        subtype="api_retry",
        attempt=2,
        max_retries=10,
        retry_delay_ms=586.9,
        error_status=529,
        error="overloaded",
    )

    assert read(retry) == [ev.ApiRetry(2, 10, 587, 529, "overloaded")]


def test_other_system_lines_are_notifications() -> None:
    assert read(line(type="system", subtype="status", status="requesting")) == [
        ev.Notification("status", "requesting")
    ]
    assert read(line(type="system", subtype="novelty")) == [ev.Notification("novelty")]
    assert read(line(type="system")) == [ev.Notification("system")]


def test_notification_is_cut_to_200_characters() -> None:
    assert read(line(type="system", subtype="informational", content="é" * 300)) == [
        ev.Notification("informational", "é" * 200)
    ]


def test_assistant_tells_its_text_and_its_tokens() -> None:
    assert read(assistant({"type": "text", "text": "Hello"})) == [
        ev.AssistantText("Hello"),
        ANSWER,
    ]


def test_thinking_is_told() -> None:
    assert read(assistant({"type": "thinking", "thinking": "hm", "signature": "x"}))[0] == ev.Thinking("hm")


def test_blocks_of_one_message_are_billed_once() -> None:
    first, second = assistant({"type": "text", "text": "a"}), assistant(call("Bash", command="ls"))

    usages = [event for event in read(first, second) if isinstance(event, ev.TokenUsage)]

    assert usages == [ANSWER]


def test_tool_use_starts_a_tool() -> None:
    assert read(assistant(call("Bash", command="ls -l\nrm x")))[0] == ev.ToolStarted("toolu_1", "Bash", "ls -l")


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ({"command": "make", "description": "build"}, "make"),
        ({"file_path": "/a.py", "old_string": "x"}, "/a.py"),
        ({"pattern": "TODO"}, "TODO"),
        ({"url": "https://example.org"}, "https://example.org"),
        ({"description": "sub", "prompt": "do"}, "sub"),
        ({"command": "x" * 300}, "x" * 200),
        ({"n": 1}, ""),
        ({}, ""),
    ],
)
def test_tool_is_summed_up_in_a_line(arguments: dict[str, object], summary: str) -> None:
    started = read(assistant(call("Tool", **arguments)))[0]

    assert isinstance(started, ev.ToolStarted)
    assert started.summary == summary


def test_tool_result_finishes_the_tool() -> None:
    happened = read(assistant(call("Bash")), user(answer()))

    assert happened[-1] == ev.ToolFinished("toolu_1", "Bash", None, None, "ok")


def test_success_is_completed() -> None:
    (event,) = read(line(type="result", subtype="success", is_error=False, result="done", num_turns=1))

    assert isinstance(event, ev.TurnCompleted)
    assert event.report.text == "done"


@pytest.mark.parametrize(
    "fields",
    [
        {"subtype": "success", "is_error": True},
        {"subtype": "error_max_turns", "is_error": True},
        {"subtype": "error_during_execution", "is_error": False},
    ],
)
def test_error_or_another_subtype_is_failed(fields: dict[str, object]) -> None:
    (event,) = read(line(type="result", **fields))

    assert isinstance(event, ev.TurnFailed)


def test_stream_event_is_a_heartbeat() -> None:
    delta = line(type="stream_event", event={"type": "content_block_delta", "delta": {"text": "x"}})

    assert ClaudeCodeParser().feed(delta, None) == (ev.HEARTBEAT,)


def test_progress_of_thinking_is_a_heartbeat() -> None:
    progress = line(type="system", subtype="thinking_tokens", estimated_tokens=7)

    assert ClaudeCodeParser().feed(progress, None) == (ev.HEARTBEAT,)


def test_line_that_is_no_json_is_malformed() -> None:
    assert read(b"Segmentation fault") == [ev.Malformed("Segmentation fault")]


# -- beyond the table


def test_model_fallback_names_both_models() -> None:
    fallback = line(
        type="system", subtype="model_fallback", trigger="overloaded", original_model="a", fallback_model="b"
    )

    assert read(fallback) == [ev.ModelFallback("a", "b", "overloaded")]


def test_rate_limit_is_told() -> None:
    info = {"status": "rejected", "resetsAt": 1795300000, "rateLimitType": "five_hour", "utilization": 1}

    assert read(line(type="rate_limit_event", rate_limit_info=info)) == [
        ev.RateLimit("rejected", 1795300000, "five_hour", 1)
    ]


def test_subagent_is_followed_from_start_to_end() -> None:
    def task(subtype: str, **fields: object) -> bytes:
        return line(type="system", subtype=subtype, task_id="t", **fields)

    happened = read(
        task("task_started", description="look", task_type="local_agent"),
        task("task_progress", description="Running grep"),
        task("task_updated", patch={"status": "completed"}),
        task("task_notification", status="completed", summary="found it"),
    )

    assert happened == [
        ev.SubagentProgress("t", "started", "look"),
        ev.SubagentProgress("t", "progress", "Running grep"),
        ev.SubagentProgress("t", "completed"),
        ev.SubagentProgress("t", "completed", "found it"),
    ]


def test_shell_in_the_background_is_no_subagent() -> None:
    def task(subtype: str, **fields: object) -> bytes:
        return line(type="system", subtype=subtype, task_id="t", **fields)

    happened = read(task("task_started", task_type="local_bash"), task("task_updated", patch={"status": "killed"}))

    assert [type(event) for event in happened] == [ev.Notification, ev.Notification]


def test_what_a_subagent_does_is_marked_as_its_own() -> None:
    text, tool, _ = read(assistant({"type": "text", "text": "a"}, call("Bash"), caller="toolu_0"))

    assert text == ev.AssistantText("a", subagent=True)
    assert tool == ev.ToolStarted("toolu_1", "Bash", subagent=True)


def test_api_error_is_told_with_its_category() -> None:
    body = {"id": "x", "model": "<synthetic>", "content": [{"type": "text", "text": "Overloaded"}], "usage": USAGE}

    assert read(line(type="assistant", message=body, error="overloaded")) == [
        ev.ApiFailure("overloaded", "Overloaded")
    ]


def test_made_up_message_without_an_error_is_text_and_costs_nothing() -> None:
    body = {"id": "x", "model": "<synthetic>", "content": [{"type": "text", "text": "Unknown command"}]}

    assert read(line(type="assistant", message=body)) == [ev.AssistantText("Unknown command")]


def test_answer_that_was_not_streamed_tells_that_one_was_lost() -> None:
    body = {
        "id": "m",
        "model": "m",
        "content": [],
        "usage": USAGE | {"output_tokens": 22},
        "stop_reason": "end_turn",
    }

    told = read(init(), line(type="assistant", message=body))
    assert told[1:] == [ev.AnswerLost(), ev.TokenUsage("m", Tokens(100, 22, 30, 4), output_known=True, answer="m")]

    # 2.1.0 has a stop reason in every message, and so may a version that does not tell which it is.
    for start in (init("2.1.0"), init(None)):
        told = read(start, line(type="assistant", message=body))
        assert told[1:] == [ev.TokenUsage("m", Tokens(100, 22, 30, 4), output_known=True, answer="m")]


@pytest.mark.parametrize(
    ("words", "amid_tool"),
    [("[Request interrupted by user]", False), ("[Request interrupted by user for tool use]", True)],
)
def test_interrupt_is_told(words: str, amid_tool: bool) -> None:
    assert read(user({"type": "text", "text": words})) == [ev.Interrupted(amid_tool)]


def test_prompt_in_the_stream_is_a_heartbeat() -> None:
    assert read(user("do it"), user({"type": "text", "text": "do it"})) == []


@pytest.mark.parametrize("kind", ["tool_progress", "control_response", "control_request", "keep_alive", "novelty"])
def test_unknown_types_are_heartbeats(kind: str) -> None:
    assert ClaudeCodeParser().feed(line(type=kind, a=[1]), None) == (ev.HEARTBEAT,)


def test_unknown_content_blocks_are_passed_over() -> None:
    happened = read(assistant({"type": "server_tool_use", "id": "x"}, {"type": "text", "text": "a"}))

    assert happened[0] == ev.AssistantText("a")


# -- partial messages


def start(message: str = "msg_1", caller: str | None = None) -> bytes:
    body = {"id": message, "model": "m", "usage": USAGE}
    event = {"type": "message_start", "message": body}
    return line(type="stream_event", event=event, parent_tool_use_id=caller)


def delta(caller: str | None = None, stop: str | None = "end_turn", **usage: int) -> bytes:
    event = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}
    return line(type="stream_event", event=event, parent_tool_use_id=caller)


def test_partial_messages_tell_the_exact_output() -> None:
    happened = read(start(), assistant({"type": "text", "text": "a"}), delta(input_tokens=100, output_tokens=45))

    assert happened == [
        ev.TokenUsage("m", TOKENS, answer="msg_1"),
        ev.AssistantText("a"),
        ev.TokenUsage("m", Tokens(0, 44, 0, 0), output_known=True, answer="msg_1"),
    ]


def test_counts_left_out_of_a_message_delta_stand_as_they_were() -> None:
    more = ev.TokenUsage("m", Tokens(0, 44, 0, 0), output_known=True, answer="msg_1")

    assert read(start(), delta(output_tokens=45))[-1] == more


def test_message_without_a_stop_reason_is_not_complete() -> None:
    happened = read(start(), delta(stop=None, output_tokens=45))

    assert [event.output_known for event in happened if isinstance(event, ev.TokenUsage)] == [False, False]


def test_cost_of_a_streamed_message_counts_cache_writes_kept_for_an_hour() -> None:
    usage = {**USAGE, "cache_creation": {"ephemeral_1h_input_tokens": 4}}
    body = {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": usage}
    state = TurnState()
    begun = line(type="stream_event", event={"type": "message_start", "message": body}, parent_tool_use_id=None)
    fold(ClaudeCodeParser(), state, [begun, delta(output_tokens=45)])

    answer = state.answers["msg_1"]
    assert (answer.billed.tokens, answer.final) == (Tokens(100, 45, 30, 4), True)
    assert answer.billed.cost_usd == pytest.approx((100 * 3 + 45 * 15 + 30 * 0.3 + 4 * 6) / 1e6)


def test_deltas_go_to_the_message_of_their_own_agent() -> None:
    happened = read(
        start("a"), start("b", caller="toolu_0"), delta(output_tokens=11), delta("toolu_0", output_tokens=3)
    )

    outputs = [event.added.output_tokens for event in happened if isinstance(event, ev.TokenUsage)]
    assert outputs == [1, 1, 10, 2]


def test_delta_without_a_message_is_a_heartbeat() -> None:
    assert read(delta(output_tokens=45)) == []


# -- timing, from the clock of whoever feeds


def timed(*lines: tuple[bytes, float | None]) -> list[ev.Event]:
    parser = ClaudeCodeParser()
    return [event for data, at in lines for event in parser.feed(data, at)]


INIT = line(type="system", subtype="init", session_id="s")


def durations(happened: list[ev.Event]) -> list[int | None]:
    return [event.api_duration_ms for event in happened if isinstance(event, ev.TokenUsage)]


def test_parallel_tools_have_durations_of_their_own() -> None:
    happened = timed(
        (assistant(call("Bash", "toolu_1")), 10.0),
        (assistant(call("Read", "toolu_2")), 10.5),
        (user(answer("toolu_2")), 11.0),
        (user(answer("toolu_1", is_error=True, content="Exit code 3")), 12.25),
    )

    assert [event for event in happened if isinstance(event, ev.ToolFinished)] == [
        ev.ToolFinished("toolu_2", "Read", 500, None, "ok"),
        ev.ToolFinished("toolu_1", "Bash", 2250, "Exit code 3"),
    ]


def test_result_without_a_call_is_told_without_name_and_duration() -> None:
    assert timed((user(answer("toolu_9")), 1.0)) == [ev.ToolFinished("toolu_9", "", None, None, "ok")]


def test_tool_whose_start_was_not_seen_live_has_no_duration() -> None:
    happened = timed((assistant(call("Bash")), None), (user(answer()), 12.0))

    assert happened[-1] == ev.ToolFinished("toolu_1", "Bash", None, None, "ok")


def test_api_time_runs_from_the_request_to_the_first_block_of_its_answer() -> None:
    happened = timed(
        (INIT, 1.0),
        (assistant({"type": "text", "text": "a"}), 1.25),
        (assistant(call("Bash")), 1.5),  # a second block of the same answer
        (user(answer()), 3.0),
        (assistant({"type": "text", "text": "b"}, message="msg_2"), 3.125),
    )

    assert durations(happened) == [250, 125]


def test_a_subagents_answer_does_not_stop_the_main_agents_clock() -> None:
    happened = timed(
        (INIT, 1.0),
        (assistant(call("Agent", "toolu_1"), call("Bash", "toolu_2")), 1.5),
        (user({"type": "text", "text": "sub job"}, caller="toolu_1"), 2.0),
        (user(answer("toolu_2")), 2.5),
        (assistant({"type": "text", "text": "sub"}, message="msg_2", caller="toolu_1"), 3.0),
        (assistant({"type": "text", "text": "main"}, message="msg_3"), 4.0),
    )

    assert durations(happened) == [500, 1000, 1500]


def test_api_time_of_a_partial_message_ends_with_its_start() -> None:
    happened = timed((INIT, 1.0), (start(), 1.5), (assistant({"type": "text", "text": "a"}), 9.0))

    assert durations(happened) == [500]


def test_lines_read_again_after_the_fact_have_no_times() -> None:
    happened = timed((INIT, None), (assistant(call("Bash")), None), (user(answer()), None))

    assert durations(happened) == [None]
    assert happened[-1] == ev.ToolFinished("toolu_1", "Bash", None, None, "ok")


# -- the result


def test_result_has_every_field_of_the_reference() -> None:
    used = {
        "inputTokens": 1,
        "outputTokens": 2,
        "cacheReadInputTokens": 3,
        "cacheCreationInputTokens": 4,
        "costUSD": 0.5,
    }
    (event,) = read(
        line(
            type="result",
            subtype="success",
            is_error=False,
            result="text",
            structured_output={"n": 1},
            modelUsage={"m": used},
            usage={
                "input_tokens": 1,
                "output_tokens": 2,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 4,
            },
            num_turns=3,
            duration_ms=1000,
            duration_api_ms=900.4,
            total_cost_usd=0.5,
            stop_reason="end_turn",
            terminal_reason="completed",
            api_error_status=None,
            permission_denials=[{"tool_name": "Bash", "tool_use_id": "t", "tool_input": {}}],
        )
    )

    assert event == ev.TurnCompleted(
        ev.Report(
            subtype="success",
            text="text",
            structured_output={"n": 1},
            by_model={"m": ModelUsage(Tokens(1, 2, 3, 4), 0.5)},
            num_turns=3,
            duration_ms=1000,
            duration_api_ms=900,
            of_session=True,  # as no version was told
            cut_short=False,
            stop_reason="end_turn",
            terminal_reason="completed",
            denied_tools=("Bash",),
        )
    )


def test_usage_since_the_last_result_is_added_up_over_the_process() -> None:
    def result(total: int, new: int) -> bytes:
        def used(count: int) -> dict[str, object]:
            counts = dict.fromkeys(("outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"), 0)
            return {"m": {"inputTokens": count, **counts, "costUSD": count / 10}}

        return line(
            type="result", subtype="success", modelUsage=used(total), model_usage_since_last_result=used(new)
        )

    # The session had used 100 before this process resumed it.
    first, second = read(result(110, 10), result(113, 3))

    assert isinstance(first, ev.TurnCompleted)
    assert isinstance(second, ev.TurnCompleted)
    assert first.report.by_model == {"m": ModelUsage(Tokens(10), 1.0)}
    assert second.report.by_model == {"m": ModelUsage(Tokens(13), 1.3)}


# -- a result that tells less, or in another form


@pytest.mark.parametrize(
    ("version", "num_turns", "cut_short"),
    [
        ("2.1.330", 1, True),
        ("2.1.69", 1, True),
        ("2.1.330", 0, False),  # a slash command asks no model
        ("2.1.330", None, None),
        ("2.1.50", 1, None),  # it has the field, and never fills it in
        (None, 1, None),
    ],
)
def test_null_as_stop_reason_is_an_answer_cut_short_where_the_version_tells_stop_reasons(
    version: str | None, num_turns: int | None, cut_short: bool | None
) -> None:
    result = line(type="result", subtype="success", stop_reason=None, num_turns=num_turns, modelUsage={})

    (_, event) = read(init(version), result)

    assert isinstance(event, ev.TurnCompleted)
    assert event.report.cut_short is cut_short


def test_stop_reason_that_is_not_there_is_no_evidence() -> None:
    (_, event) = read(init(), line(type="result", subtype="success", num_turns=3, modelUsage={}))

    assert isinstance(event, ev.TurnCompleted)
    assert event.report.cut_short is None


@pytest.mark.parametrize(
    ("fields", "unread"),
    [
        ({"usage": USAGE}, ("modelUsage",)),
        ({"modelUsage": None}, ("modelUsage", "usage")),
        ({"modelUsage": {"m": {"inputTokens": 1}}, "usage": USAGE}, ("modelUsage of m",)),
        ({"modelUsage": {"m": 5}, "usage": USAGE}, ("modelUsage of m",)),
        ({"modelUsage": {}, "usage": {"input_tokens": 9}}, ("usage",)),
        ({"modelUsage": {}, "usage": USAGE | {"input_tokens": "9"}}, ("usage",)),
        ({"modelUsage": {}, "usage": USAGE, "errors": 5, "permission_denials": [5, {}]}, ()),
    ],
)
def test_success_stays_one_and_names_what_of_its_account_cannot_be_read(
    fields: dict[str, object], unread: tuple[str, ...]
) -> None:
    (_, event) = read(init(), line(type="result", subtype="success", **fields))

    assert isinstance(event, ev.TurnCompleted)
    assert (event.report.unread, event.report.by_model) == (unread, {})


@pytest.mark.parametrize("fields", [{}, {"subtype": None}, {"subtype": ["success"]}])
def test_result_without_a_subtype_is_none_of_success(fields: dict[str, object]) -> None:
    (_, event) = read(init(), line(type="result", modelUsage={}, usage=USAGE, **fields))

    assert isinstance(event, ev.TurnFailed)
    assert (event.report.subtype, event.report.unread) == ("", ("subtype",))


# -- lines that are not as they should be


@pytest.mark.parametrize(
    "broken",
    [
        line(type="assistant"),
        line(type="assistant", message={"id": "x"}),
        line(type="assistant", message={"id": "x", "model": "m", "content": [{"type": "text"}], "usage": USAGE}),
        line(type="assistant", message={"id": "x", "model": "m", "content": [{"type": "text", "text": 5}]}),
        line(type="assistant", message={"id": "x", "model": 5, "content": [], "usage": USAGE}),
        line(type="assistant", message={"id": "x", "model": "m", "content": [], "usage": {"input_tokens": "9"}}),
        line(type="assistant", message={"id": "x", "model": "m", "content": [], "usage": {"input_tokens": -9}}),
        line(type="assistant", message={"id": "x", "model": "m", "content": [], "usage": {"input_tokens": 1.5}}),
        line(type="user"),
        line(type="user", message={"content": ["text"]}),
        line(type="user", message={"content": [{"type": "tool_result"}]}),
        line(type="system", subtype="init"),
        line(type="system", subtype="init", session_id=5),
        line(type="system", subtype="api_retry"),
        line(type="system", subtype="task_started"),
        line(type="stream_event", event={"type": "message_start"}),
        line(type="rate_limit_event"),
        line(type=["assistant"]),
        b'"text"',
        b"[]",
        b"5",
        b"null",
    ],
)
def test_known_type_without_what_it_always_has_is_malformed(broken: bytes) -> None:
    parser, state = ClaudeCodeParser(), TurnState()

    assert fold(parser, state, [broken]) == [ev.Malformed(broken.decode())]
    assert state.seen == {}


@pytest.mark.parametrize(
    "garbage",
    [
        b"x" * 600,
        "é".encode() * 600,
        "😀".encode() * 600,
        b"\xff" * 600,
        b"x" * 499 + "é".encode(),
        b"{" * 12_000_000,
        b'{"type":"assistant","message":"' + b"a" * 12_000_000,
        "😀".encode() * 3_000_000,
    ],
    ids=[
        "ascii",
        "two bytes",
        "four bytes",
        "no UTF-8",
        "cut in a character",
        "12 MB",
        "12 MB of a line",
        "12 MB wide",
    ],
)
def test_malformed_line_is_cut_to_500_characters(garbage: bytes) -> None:
    (event,) = ClaudeCodeParser().feed(garbage, None)

    assert isinstance(event, ev.Malformed)
    assert event.text == garbage[:4000].decode(errors="replace")[:500]
    assert len(event.text) <= 500


def test_line_of_12_megabytes_is_read() -> None:
    text = "a" * 12_000_000

    assert read(assistant({"type": "text", "text": text}))[0] == ev.AssistantText(text)


def test_half_a_surrogate_pair_is_replaced() -> None:
    cut = assistant({"type": "text", "text": "PLACE"}).replace(b"PLACE", rb"a\ud83d b\uDE00 c\ud83d\ude00")

    assert read(cut)[0] == ev.AssistantText("a? b? c\N{GRINNING FACE}")


def test_text_that_speaks_of_a_surrogate_is_left_alone() -> None:
    assert read(assistant({"type": "text", "text": r"write \ud83d"}))[0] == ev.AssistantText(r"write \ud83d")


def test_truncated_text_delta_is_malformed() -> None:
    whole = line(type="stream_event", event={"type": "content_block_delta", "delta": {"text": "abc"}})

    assert isinstance(ClaudeCodeParser().feed(whole[:-9], None)[0], ev.Malformed)

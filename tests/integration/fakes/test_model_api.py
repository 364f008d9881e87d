"""The scripted model API: what it sends, what it bills, and that the real Claude Code CLI cannot tell."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.fakes.model_api import (
    UNROUTED,
    Branch,
    Fault,
    Hold,
    HttpError,
    ModelApi,
    Reply,
    Script,
    ScriptBook,
    Text,
    Thinking,
    ToolUse,
    Usage,
    dump_scripts,
    load_scripts,
    replies,
)
from tests.fakes.model_api.cli import claude_binary, claude_command, claude_environment, reported_usage
from tests.support.places import ROOT, TESTS

SONNET = "claude-sonnet-4-5"
DEMO = TESTS / "fakes" / "model_api" / "demo.json"
TIMEOUT_S = 120.0


# -- over HTTP ---------------------------------------------------------------------------------------------------


@contextmanager
def posted(
    api: ModelApi, prompt: str = "hi", *, model: str = SONNET, stream: bool = True, **headers: str
) -> Iterator[http.client.HTTPResponse]:
    """A `POST /v1/messages`; header names with underscores for dashes."""
    connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"), timeout=TIMEOUT_S)
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": prompt}]}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/v1/messages", json.dumps(body), names)
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def events(response: http.client.HTTPResponse) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in response.read().splitlines() if line.startswith(b"data: ")]


def ask(api: ModelApi, prompt: str = "hi", **options: Any) -> tuple[int, str]:
    """Status, and the answer's text or the error's message."""
    with posted(api, prompt, stream=False, **options) as response:
        body = json.load(response)
    return response.status, body["content"][0]["text"] if response.status == 200 else body["error"]["message"]


def get(api: ModelApi, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"), timeout=TIMEOUT_S)
    connection.request("GET", path)
    with connection.getresponse() as response:
        status, body = response.status, json.load(response)
    connection.close()
    return status, body


def test_streamed_reply_has_the_events_of_the_api_and_is_billed() -> None:
    usage = Usage(input=100, output=40, cache_read=30, cache_creation=20, cache_creation_1h=5)
    reply = Reply((Thinking("hmm"), Text("abcdef"), ToolUse("Bash", {"command": "ls"})), usage, chunks=2)
    with ModelApi(Script("a", replies=(reply,))) as api:
        with posted(api) as response:
            got = events(response)
        bill = api.bill("a")
    block = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
    thinking = [*block[:3], "content_block_delta", "content_block_stop"]  # the signature is a delta of its own
    assert [event["type"] for event in got] == (
        ["message_start", *thinking, *block, *block, "message_delta", "message_stop"]
    )
    assert got[0]["message"]["usage"]["output_tokens"] == 1
    assert got[0]["message"]["usage"]["cache_creation"] == {
        "ephemeral_5m_input_tokens": 15,
        "ephemeral_1h_input_tokens": 5,
    }
    assert [event["delta"]["text"] for event in got if event.get("delta", {}).get("type") == "text_delta"] == [
        "abc",
        "def",
    ]
    assert got[-2]["delta"]["stop_reason"] == "tool_use"
    assert got[-2]["usage"]["output_tokens"] == 40
    assert bill.by_model == {SONNET: usage}
    assert not bill.partial


def test_whole_reply_is_billed_like_a_streamed_one() -> None:
    with ModelApi(Script("a", replies=(replies.text("hello", Usage(7, 8, 9, 10)),))) as api:
        assert ask(api) == (200, "hello")
        assert api.bill("a").by_model == {SONNET: Usage(7, 8, 9, 10)}


def test_refused_request_costs_nothing() -> None:
    with ModelApi(Script("a", replies=(replies.rate_limited(3),))) as api:
        with posted(api) as response:
            assert response.status == 429
            assert response.headers["retry-after"] == "3"
            assert json.load(response)["error"]["type"] == "rate_limit_error"
        (line,) = api.bill("a").requests
    assert (line.status, line.usage, line.partial) == (429, Usage(), False)


@pytest.mark.parametrize("kind", ["cut", "error", "reset"])
def test_broken_stream_bills_its_input_and_one_token_of_output(kind: Any) -> None:
    reply = Reply((Text("abcdef"),), Usage(100, 40, 30, 20), chunks=6, fault=Fault(kind, after_events=4))
    with ModelApi(Script("a", replies=(reply,))) as api:
        with posted(api) as response:
            if kind == "reset":
                with pytest.raises(ConnectionResetError):
                    response.read()
            else:
                got = [event["type"] for event in events(response)]
                assert "message_delta" not in got
                assert (got[-1] == "error") == (kind == "error")
        (line,) = api.wait_until_idle("a").requests
    assert (line.usage, line.partial, line.disconnected) == (Usage(100, 1, 30, 20), True, False)


def test_held_reply_goes_on_when_its_gate_is_released() -> None:
    reply = Reply((Text("late"),), Usage(5, 6), hold=Hold("mid", after_events=2))
    with ModelApi(Script("a", replies=(reply,))) as api:
        with posted(api) as response:
            api.gate("mid").wait_until_reached()
            assert api.bill("a").by_model == {SONNET: Usage(5, 1)}
            api.gate("mid").release()
            assert events(response)[-1]["type"] == "message_stop"
        assert api.bill("a").by_model == {SONNET: Usage(5, 6)}


def test_client_that_leaves_a_held_reply_is_noticed() -> None:
    reply = Reply((Text("late"),), Usage(5, 6), hold=Hold("mid", after_events=2))
    with ModelApi(Script("a", replies=(reply,))) as api:
        with posted(api):
            api.gate("mid").wait_until_reached()
        (line,) = api.wait_until_idle("a").requests
    assert (line.usage, line.partial, line.disconnected) == (Usage(5, 1), True, True)


def test_request_that_is_never_answered_costs_nothing() -> None:
    with ModelApi(Script("a", replies=(replace(replies.overloaded(), hold=Hold("hang")),))) as api:
        connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"))
        connection.request("POST", "/v1/messages", json.dumps({"model": SONNET, "messages": []}))
        api.gate("hang").wait_until_reached()
        connection.close()
        (line,) = api.wait_until_idle("a").requests
    assert (line.status, line.usage, line.partial, line.disconnected) == (None, Usage(), True, True)


def test_script_is_chosen_by_key_then_marker_then_session_then_keyword() -> None:
    scripts = [
        Script(name, replies=(replies.text(name),) * 3, key=f"key-{name}", keyword=f"please {name}")
        for name in ("a", "b", "c", "d")
    ]
    with ModelApi(*scripts) as api:
        assert ask(api, "[script:b]", x_api_key="key-a") == (200, "a")
        assert ask(api, "[script:b] please a", authorization="Bearer other") == (200, "b")
        assert ask(api, "please c", x_claude_code_session_id="s1") == (200, "c")
        assert ask(api, "and on, please a", x_claude_code_session_id="s1") == (200, "c")
        assert ask(api, "[script:b]", x_claude_code_session_id="s1") == (200, "b")
        assert ask(api, "hello", authorization="Bearer key-d") == (200, "d")
        status, message = ask(api, "hello")
        assert status == 400
        assert "known: a, b, c, d" in message
        assert [line.prompt for line in api.bill(UNROUTED).requests] == ["hello"]


def test_branches_take_subagents_and_other_models_and_the_rest_is_main() -> None:
    script = Script(
        "a",
        replies=(replies.text("main"),),
        branches=(
            Branch((replies.text("subagent"),), name="sub", prompt="SUBJOB"),
            Branch((replies.text("opus"),), name="big", model="opus"),
        ),
    )
    with ModelApi(script) as api:
        assert ask(api, "do SUBJOB", x_claude_code_agent_id="1") == (200, "subagent")
        assert ask(api, "hi", model="claude-opus-4-5") == (200, "opus")
        assert ask(api, "title?", model="claude-haiku-4-5") == (200, '{"title": "Scripted turn"}')
        assert ask(api, "hi") == (200, "main")
        assert [line.list_name for line in api.bill("a").requests] == ["sub", "big", "side", "main"]
        assert set(api.bill("a").by_model) == {SONNET, "claude-opus-4-5", "claude-haiku-4-5"}
        status, message = ask(api, "other", x_claude_code_agent_id="2")
        assert (status, message) == (400, "model api: script 'a' has no branch for this subagent")


@pytest.mark.parametrize("prompt", ["quota", "Warmup"])
def test_what_older_versions_ask_at_their_start_is_billed_and_takes_no_reply_of_the_conversation(
    prompt: str,
) -> None:
    beside = replies.text("beside", Usage(410, 23))
    with ModelApi(Script("a", (replies.text("answer"),), side_reply=beside)) as api:
        assert [ask(api, asked)[1] for asked in (prompt, "hi", prompt)] == ["beside", "answer", "beside"]
        assert api.bill("a").by_model == {SONNET: Usage(830, 51)}


def test_exhausted_script_says_so() -> None:
    with ModelApi(Script("a", replies=(replies.text("only"),))) as api:
        assert ask(api) == (200, "only")
        assert ask(api) == (400, "model api: script 'a' has 1 replies in its list 'main'; this is request 2")


def test_script_per_session_starts_over() -> None:
    with ModelApi(Script("a", replies=(replies.text("1"), replies.text("2")), per_session=True)) as api:
        got = [ask(api, x_claude_code_session_id=session)[1] for session in ("x", "y", "x", "y")]
    assert got == ["1", "1", "2", "2"]


def test_bill_is_served_as_json() -> None:
    with ModelApi(Script("a", replies=(replies.text("x", Usage(1, 2, 3, 4)),))) as api:
        ask(api)
        status, bills = get(api, "/bill")
        assert (status, bills) == get(api, "/bill?script=a")
    assert bills["a"]["requests"] == 1
    assert bills["a"]["by_model"][SONNET] == {
        "input": 1, "output": 2, "cache_read": 3, "cache_creation": 4, "cache_creation_1h": 0,
    }  # fmt: skip


def test_unknown_paths_and_bad_bodies_are_refused_in_the_api_s_words() -> None:
    with ModelApi(Script("a", replies=())) as api:
        assert get(api, "/v1/models")[1]["error"]["type"] == "not_found_error"
        with posted(api, model=1) as response:  # type: ignore[arg-type]
            assert (response.status, json.load(response)["error"]["type"]) == (400, "invalid_request_error")


def test_scripts_survive_json(tmp_path: Path) -> None:
    book = ScriptBook(
        (
            Script(
                "a",
                replies=(
                    Reply(
                        (Text("x"), Thinking("y"), replies.bash("ls")), hold=Hold("g", 1), fault=Fault("cut", 2)
                    ),
                    HttpError(529, "overloaded_error", "Overloaded"),
                ),
                branches=(Branch((replies.text("z"),), prompt="p"),),
            ),
        )
    )
    path = tmp_path / "scripts.json"
    path.write_bytes(dump_scripts(book))
    assert load_scripts(path) == book


def test_typos_and_double_names_in_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_text('{"scripts": [{"name": "a", "replies": [], "keywrd": "x"}]}')
    with pytest.raises(ValidationError, match="keywrd"):
        load_scripts(path)
    path.write_text('{"scripts": [{"name": "a", "replies": []}, {"name": "a", "replies": []}]}')
    with pytest.raises(ValidationError, match="used twice: a"):
        load_scripts(path)


def test_runs_on_its_own_until_it_is_told_to_stop(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    command = [sys.executable, "-m", "tests.fakes.model_api", str(DEMO), "--port-file", str(port_file)]
    root = ROOT
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().strip()
        assert base_url == f"http://127.0.0.1:{port_file.read_text().strip()}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0


# -- with the real CLI -------------------------------------------------------------------------------------------


class Cli:
    """Starts the real CLI; every turn has the same home and workspace, so that sessions can be resumed."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self._binary = binary
        self._home = directory / "home"
        self._workspace = directory / "workspace"
        self._home.mkdir()
        self._workspace.mkdir()

    def start(
        self, api: ModelApi, prompt: str, *options: str, max_retries: int | None = None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            claude_command(self._binary, *options, model=SONNET),
            cwd=self._workspace,
            env=claude_environment(api.base_url, self._home, max_retries=max_retries),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(prompt.encode())
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, api: ModelApi, prompt: str, *options: str, max_retries: int | None = None) -> dict[str, Any]:
        """Play a turn to its end; the result event, with the exit status as `exit`."""
        return outcome(self.start(api, prompt, *options, max_retries=max_retries))


def outcome(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The last event of a process that is about to end, with its exit status as `exit`."""
    stdout, _ = process.communicate(timeout=TIMEOUT_S)
    event: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return event | {"exit": process.returncode}


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    binary = claude_binary()
    if binary is None:
        # A laptop may lack it; a green CI run must not hide that.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Claude Code CLI")
    return Cli(binary, tmp_path)


def test_cli_runs_parallel_tools_and_reports_the_bill(cli: Cli) -> None:
    two_tools = Reply(
        (Thinking("two at once"), Text("I run two."), replies.bash("echo one"), replies.bash("echo two")),
        Usage(1000, 200, 3000, 500, 120),
        chunks=3,
    )
    with ModelApi(Script("a", replies=(two_tools, replies.text("Done.", Usage(50, 30, 4500, 260))))) as api:
        result = cli.run(api, "do it")
        bill = api.bill("a")
    assert (result["exit"], result["subtype"], result["is_error"], result["result"]) == (
        0,
        "success",
        False,
        "Done.",
    )
    assert reported_usage(result) == bill.by_model == {SONNET: Usage(1050, 230, 7500, 760, 120)}


def test_cli_runs_a_subagent_on_another_model_and_reports_both(cli: Cli) -> None:
    script = Script(
        "a",
        replies=(
            Reply((Text("I delegate."), replies.agent("SUBJOB", model="haiku")), Usage(120, 45, 33, 7)),
            replies.text("Main done.", Usage(130, 46, 34, 8)),
        ),
        branches=(
            Branch(
                (
                    Reply((replies.bash("echo sub"),), Usage(300, 60, 10, 5)),
                    replies.text("Sub done.", Usage(310, 61, 11, 6)),
                ),
                name="sub",
                prompt="SUBJOB",
            ),
        ),
    )
    with ModelApi(script) as api:
        result = cli.run(api, "go")
        bill = api.bill("a")
    assert result["result"] == "Main done."
    assert [line.list_name for line in bill.requests] == ["main", "sub", "sub", "main"]
    assert len(bill.by_model) == 2
    assert reported_usage(result) == bill.by_model


def test_cli_retries_after_429(cli: Cli) -> None:
    with ModelApi(Script("a", replies=(replies.rate_limited(0), replies.text("fine", Usage(9, 8, 7, 6))))) as api:
        result = cli.run(api, "do it")
        bill = api.bill("a")
    assert [line.status for line in bill.requests] == [429, 200]
    assert result["result"] == "fine"
    assert reported_usage(result) == bill.by_model == {SONNET: Usage(9, 8, 7, 6)}


def test_cli_without_retries_reports_401_at_once(cli: Cli) -> None:
    with ModelApi(Script("a", replies=(replies.unauthorized(),))) as api:
        result = cli.run(api, "do it", max_retries=0)
        bill = api.bill("a")
    assert (result["exit"], result["subtype"], result["is_error"]) == (1, "success", True)
    assert result["api_error_status"] == 401
    assert reported_usage(result) == bill.by_model == {}
    assert len(bill.requests) == 1


def test_cli_asks_again_after_a_cut_stream_and_estimates_what_it_lost(cli: Cli) -> None:
    cut = Reply((Text("abc " * 50),), Usage(300, 77, 60, 7), chunks=4, fault=Fault("cut", after_events=5))
    with ModelApi(Script("a", replies=(cut, replies.text("again", Usage(11, 12, 13, 14))))) as api:
        result = cli.run(api, "do it")
        bill = api.bill("a")
    assert result["result"] == "again"
    assert [line.partial for line in bill.requests] == [True, False]
    assert bill.by_model == {SONNET: Usage(311, 13, 73, 21)}
    (reported,) = reported_usage(result).values()
    assert replace(reported, output=0) == replace(bill.total, output=0)
    assert reported.output > bill.total.output  # its own guess at the tokens of the text that came


def test_cli_ended_by_sigterm_in_mid_stream_reports_nothing_and_is_billed_in_part(cli: Cli) -> None:
    held = Reply((Text("abc " * 50),), Usage(300, 77, 60, 7), chunks=4, hold=Hold("mid", after_events=5))
    first = Reply((replies.bash("echo one"),), Usage(100, 20, 30, 4))
    with ModelApi(Script("a", replies=(first, held))) as api:
        process = cli.start(api, "do it")
        api.gate("mid").wait_until_reached()
        process.send_signal(signal.SIGTERM)
        last = outcome(process)
        bill = api.wait_until_idle("a")
    assert (last["exit"], last["type"]) == (128 + signal.SIGTERM, "user")  # a tool's result: no result event
    assert bill.by_model == {SONNET: Usage(400, 21, 90, 11)}
    assert [(line.partial, line.disconnected) for line in bill.requests] == [(False, False), (True, True)]


def test_resumed_cli_reports_the_sum_of_its_session(cli: Cli) -> None:
    script = Script("a", replies=(replies.text("1", Usage(1, 2, 3, 4)), replies.text("2", Usage(10, 20, 30, 40))))
    with ModelApi(script) as api:
        first = cli.run(api, "one")
        second = cli.run(api, "two", "--resume", first["session_id"])
        bill = api.bill("a")
    assert [line.usage for line in bill.requests] == [Usage(1, 2, 3, 4), Usage(10, 20, 30, 40)]
    assert reported_usage(second) == bill.by_model
    since = {"modelUsage": second["model_usage_since_last_result"]}
    assert reported_usage(since) == {SONNET: Usage(10, 20, 30, 40)}


def test_cli_plays_the_demo_three_turns_at_once(cli: Cli) -> None:
    prompts = {"fix": "mend the greeting", "survey": "[script:survey] count", "limit": "mind the limit"}
    with ModelApi(*(without_delays(script) for script in load_scripts(DEMO).scripts)) as api:
        processes = {name: cli.start(api, prompt) for name, prompt in prompts.items()}
        for name, process in processes.items():
            result = outcome(process)
            assert (result["exit"], result["is_error"]) == (0, False), result["result"]
            assert reported_usage(result) == api.bill(name).by_model
        assert set(api.bills()) == set(prompts)


def without_delays(script: Script) -> Script:
    def quick(answers: tuple[Reply | HttpError, ...]) -> tuple[Reply | HttpError, ...]:
        return tuple(replace(answer, delay_s=0.0) if isinstance(answer, Reply) else answer for answer in answers)

    branches = tuple(replace(branch, replies=quick(branch.replies)) for branch in script.branches)
    return replace(script, replies=quick(script.replies), branches=branches)

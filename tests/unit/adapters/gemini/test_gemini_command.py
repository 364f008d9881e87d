"""What the adapter `gemini` starts, refuses and tells of itself."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.billing import billing_modes
from adapters.command import SessionFiles, Signal
from adapters.contract import AgentConfig, Exit, Session
from adapters.errors import InvalidRequest
from adapters.gemini.adapter import Gemini, encoded
from adapters.gemini.options import FLAGS, GeminiOptions
from adapters.protocol.request import TurnRequest

NEW = Session("11111111-2222-4333-8444-555555555555", resume=False)


def request(prompt: str = "do it", **fields: Any) -> TurnRequest:
    return TurnRequest.parse({"prompt": prompt, "workspace": "/w", "agent": "gemini", **fields})


def test_plain_turn() -> None:
    command = Gemini(AgentConfig()).build(request(env=["TOKEN"]), NEW)
    assert command.argv == (
        "gemini",
        "--output-format=stream-json",
        "--session-id=11111111-2222-4333-8444-555555555555",
        "--approval-mode=yolo",
    )
    assert (command.stdin, command.cwd, command.forward_env) == (b"do it", "/w", ("TOKEN",))
    assert command.env == {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
    assert command.stop == (Signal("TERM", 5.0), Signal("KILL", 5.0))
    assert command.session_files == SessionFiles(
        "GEMINI_CLI_HOME",
        "",
        (
            ".gemini/tmp/*/chats/session-*-11111111.jsonl",
            ".gemini/tmp/*/chats/11111111-2222-4333-8444-555555555555/*.jsonl",
        ),
        ".gemini",
    )


def test_resumed_turn() -> None:
    command = Gemini(AgentConfig(command="/opt/gemini")).build(request(), Session("abc", resume=True))
    assert command.argv[:3] == ("/opt/gemini", "--output-format=stream-json", "--resume=abc")


def test_options_become_flags_and_those_of_a_request_win() -> None:
    agent = Gemini(AgentConfig(options={"model": "gemini-2.5-flash", "sandbox": True}))
    options = {
        "approval_mode": "auto_edit",
        "model": "gemini-2.5-pro",
        "sandbox": False,
        "allowed_tools": "run_shell_command(git)",
        "allowed_mcp_servers": "a,b",
        "extensions": "none",
        "include_directories": "/data,/more",
    }
    assert agent.build(request(options=options), NEW).argv[3:] == (
        "--approval-mode=auto_edit",
        "--model=gemini-2.5-pro",
        "--allowed-tools=run_shell_command(git)",
        "--allowed-mcp-server-names=a,b",
        "--extensions=none",
        "--include-directories=/data,/more",
        "--sandbox=false",
    )
    assert agent.build(request(), NEW).argv[3:] == (
        "--approval-mode=yolo",
        "--model=gemini-2.5-flash",
        "--sandbox=true",
    )


def test_plan_turn_has_no_tools_that_change_anything() -> None:
    options = {"approval_mode": "yolo", "allowed_tools": "write_file"}
    command = Gemini(AgentConfig()).build(request(plan=True, options=options), NEW)
    assert command.argv[3:] == ("--approval-mode=default",)


def test_every_option_reaches_the_agent() -> None:
    assert set(GeminiOptions.model_fields) == {*FLAGS, "sandbox", "slash_command", "file_references"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"options": {"approval_mode": "often"}}, "options.approval_mode"),
        ({"options": {"modle": "x"}}, "options.modle"),
        ({"options": {"model": "a\0b"}}, "options.model"),
        ({"output_schema": {"type": "object"}}, "output_schema"),
        ({"prompt": "x" * (8 * 2**20 + 1)}, "prompt"),
    ],
)
def test_request_that_cannot_run_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Gemini(AgentConfig()).check(request(**fields))
    assert refused.value.field == named


def test_operators_options_are_checked() -> None:
    with pytest.raises(InvalidRequest, match="approval_mode"):
        Gemini(AgentConfig(options={"approval_mode": 1}))


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("/help", b"\n/help"),
        ("say /help", b"say /help"),
        ("@notes.txt", rb"\@notes.txt"),
        ('mail a@b.org, see @.env and @"a b"', rb'mail a\@b.org, see \@.env and \@"a b"'),
        (r"as \@here, @ there, @.", rb"as \@here, @ there, @."),
        ("/@x", b"\n/\\@x"),
    ],
)
def test_text_stays_text(prompt: str, text: bytes) -> None:
    assert Gemini(AgentConfig()).build(request(prompt), NEW).stdin == text


def test_commands_and_references_when_they_are_wanted() -> None:
    assert encoded("/plan @x", slash_command=True, file_references=True) == b"/plan @x"


def test_credentials_are_those_of_its_login() -> None:
    names = Gemini(AgentConfig()).credentials
    assert names({}) == ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL")
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in names({"GOOGLE_APPLICATION_CREDENTIALS": "/k.json"})
    assert {"GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"} <= set(
        names({"GOOGLE_GENAI_USE_VERTEXAI": "true"})
    )


@pytest.mark.parametrize(
    ("credentials", "first"),
    [
        ([], "subscription"),
        (["GEMINI_API_KEY"], "api"),
        (["GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT"], "api"),
        (["GOOGLE_GENAI_USE_GCA"], "subscription"),
    ],
)
def test_billing_is_as_its_login_tells(credentials: list[str], first: str) -> None:
    assert billing_modes(None, Gemini(AgentConfig()).capabilities, credentials)[0] == first


@pytest.mark.parametrize(
    ("end", "stdout", "version", "problem"),
    [
        (Exit(0), "0.61.0\n", "0.61.0", None),
        (Exit(127), "", None, "install the Gemini CLI"),
        (Exit(1, "boom"), "", None, "boom"),
    ],
)
def test_health(end: Exit, stdout: str, version: str | None, problem: str | None) -> None:
    agent = Gemini(AgentConfig())
    health = agent.health(end, stdout)
    assert (health.healthy, health.version) == (version is not None, version)
    assert (problem or "") in (health.problem or "")
    assert agent.probe() == ("gemini", "--version")

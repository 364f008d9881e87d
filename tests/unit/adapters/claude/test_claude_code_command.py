"""From a request to the command line of Claude Code."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.claude_code.options import FLAGS, ClaudeCodeOptions
from adapters.command import Command, Signal
from adapters.contract import Adapter, AgentConfig, Exit, Session
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.registry import Registry
from adapters.toolkit.options import MAX_ARGUMENT_BYTES

NEW = Session("11111111-2222-3333-4444-555555555555", resume=False)
OLD = Session(NEW.session_id, resume=True)


def request(**fields: Any) -> TurnRequest:
    return TurnRequest.parse({"prompt": "Fix the bug", "workspace": "/srv/repo", **fields})


def command(session: Session = NEW, **fields: Any) -> Command:
    return ClaudeCode().build(request(**fields), session)


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refusal:
        ClaudeCode().check(request(**fields))
    return refusal.value


def test_adapter_fulfils_the_contract() -> None:
    agent: Adapter = ClaudeCode()  # mypy proves it

    assert agent.name == "claude-code"


# -- arguments


def test_least_command_line() -> None:
    assert command().argv == (
        "claude",
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
        "--session-id",
        NEW.session_id,
        "--permission-mode=bypassPermissions",
    )


def test_plan_turn_may_read_alone() -> None:
    options = {"permission_mode": "bypassPermissions", "allowed_tools": "Bash", "disallowed_tools": "WebFetch"}
    argv = command(plan=True, options=options).argv
    assert argv[8:] == ("--permission-mode=default", "--disallowedTools=WebFetch")


def test_first_turn_names_its_session_and_later_ones_resume_it() -> None:
    assert command(NEW).argv[6:8] == ("--session-id", NEW.session_id)
    assert command(OLD).argv[6:8] == ("--resume", NEW.session_id)
    assert "--resume" not in command(NEW).argv
    assert "--session-id" not in command(OLD).argv


@pytest.mark.parametrize(
    ("option", "value", "argument"),
    [
        ("permission_mode", "acceptEdits", "--permission-mode=acceptEdits"),
        ("model", "claude-sonnet-4-5", "--model=claude-sonnet-4-5"),
        ("fallback_model", "claude-haiku-4-5", "--fallback-model=claude-haiku-4-5"),
        ("max_turns", 50, "--max-turns=50"),
        ("max_budget_usd", 5, "--max-budget-usd=5.0"),
        ("effort", "high", "--effort=high"),
        ("allowed_tools", "Edit,Write,Bash", "--allowedTools=Edit,Write,Bash"),
        ("disallowed_tools", "WebFetch", "--disallowedTools=WebFetch"),
        ("system_prompt", "--be kind", "--append-system-prompt=--be kind"),
        ("mcp_config", "./mcp.json", "--mcp-config=./mcp.json"),
        ("session_persistence", False, "--no-session-persistence"),
    ],
)
def test_every_option_of_the_reference_is_a_flag(option: str, value: object, argument: str) -> None:
    assert argument in command(options={option: value}).argv


def test_table_of_flags_names_options_that_exist() -> None:
    others = {"session_persistence", "slash_command", "max_api_retries"}

    assert set(FLAGS) | others == set(ClaudeCodeOptions.model_fields)


def test_operators_defaults_hold_unless_the_request_says_otherwise() -> None:
    agent = ClaudeCode(AgentConfig(options={"model": "opus", "max_turns": 9}))
    argv = agent.build(request(options={"max_turns": 2}), NEW).argv

    assert "--model=opus" in argv
    assert "--max-turns=2" in argv
    assert "--max-turns=9" not in argv


@pytest.mark.parametrize(("cap", "option", "smaller"), [(1.0, 2.0, 1.0), (2.0, 1.0, 1.0), (3.0, None, 3.0)])
def test_smaller_cost_cap_counts(cap: float, option: float | None, smaller: float) -> None:
    options = {} if option is None else {"max_budget_usd": option}

    assert f"--max-budget-usd={smaller}" in command(max_cost_usd=cap, options=options).argv


def test_output_schema_is_one_argument() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    assert (
        '--json-schema={"type":"object","properties":{"n":{"type":"integer"}}}'
        in command(output_schema=schema).argv
    )


def test_prompt_is_no_argument() -> None:
    built = command(prompt="--version s3cret")

    assert not any("s3cret" in argument for argument in built.argv)
    assert built.stdin == b"--version s3cret"


# -- the prompt


@pytest.mark.parametrize(
    ("prompt", "stdin"),
    [
        ("Fix it", b"Fix it"),
        ("/cost", b"\n/cost"),
        ("/", b"\n/"),
        (" /cost", b" /cost"),  # text to Claude Code already
        ("Grüße 😀", "Grüße 😀".encode()),
    ],
)
def test_leading_slash_is_text(prompt: str, stdin: bytes) -> None:
    assert command(prompt=prompt).stdin == stdin


def test_leading_slash_is_a_command_if_the_request_says_so() -> None:
    assert command(prompt="/cost", options={"slash_command": True}).stdin == b"/cost"


# -- the environment


def test_named_variables_are_forwarded_by_name_only() -> None:
    built = command(env=["GITHUB_TOKEN"])

    assert built.forward_env == ("GITHUB_TOKEN",)
    assert "GITHUB_TOKEN" not in built.env


def test_cloud_credentials_are_the_agents_only_where_it_logs_in_with_them() -> None:
    assert {"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"} <= set(ClaudeCode().credentials({}))
    assert "AWS_SECRET_ACCESS_KEY" not in ClaudeCode().credentials({"AWS_SECRET_ACCESS_KEY": "x"})
    assert "AWS_SECRET_ACCESS_KEY" in ClaudeCode().credentials({"CLAUDE_CODE_USE_BEDROCK": "1"})
    assert "GOOGLE_APPLICATION_CREDENTIALS" in ClaudeCode().credentials({"CLAUDE_CODE_USE_VERTEX": "1"})


def test_marks_of_an_outer_claude_code_are_unset() -> None:
    assert {"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"} <= set(command().unset_env)


def test_agent_does_not_update_itself() -> None:
    assert command().env["DISABLE_AUTOUPDATER"] == "1"


def test_output_of_each_answer_is_printed_but_not_piece_by_piece() -> None:
    assert "--include-partial-messages" in command().argv
    assert command().env["CLAUDE_CODE_STREAM_EVENT_HOLD_MS"] == "1000"


def test_agents_own_retries_can_be_set() -> None:
    assert command(options={"max_api_retries": 0}).env["CLAUDE_CODE_MAX_RETRIES"] == "0"


# -- how it is ended, and where its records lie


def test_interrupted_first_then_terminated_then_killed() -> None:
    built = ClaudeCode(AgentConfig(stop_grace_s=7.0)).build(request(), NEW)

    assert built.stop == (Signal("INT", 7.0), Signal("TERM", 7.0), Signal("KILL", 7.0))


def test_session_files_are_found_by_the_session_alone() -> None:
    files = command().session_files

    assert files is not None
    assert (files.root_env, files.root_default) == ("CLAUDE_CONFIG_DIR", ".claude")
    assert files.patterns == (
        f"projects/*/{NEW.session_id}.jsonl",
        f"projects/*/{NEW.session_id}/subagents/agent-*.jsonl",
    )


def test_session_without_persistence_has_no_files() -> None:
    assert command(options={"session_persistence": False}).session_files is None


# -- bad input


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("nope", 1),
        ("permission_mode", "yolo"),
        ("model", ""),
        ("model", 5),
        ("model", "a\0"),
        ("fallback_model", ""),
        ("max_turns", 0),
        ("max_turns", -1),
        ("max_budget_usd", 0),
        ("max_budget_usd", -1),
        ("effort", "extreme"),
        ("allowed_tools", ["Edit"]),
        ("disallowed_tools", ""),
        ("system_prompt", "x" * (MAX_ARGUMENT_BYTES + 1)),
        ("mcp_config", ""),
        ("session_persistence", "maybe"),
        ("slash_command", "maybe"),
        ("max_api_retries", -1),
    ],
)
def test_bad_option_is_refused_by_its_name(option: str, value: object) -> None:
    assert refused(options={option: value}).field == f"options.{option}"


def test_session_without_files_cannot_be_resumed() -> None:
    error = refused(session_id=NEW.session_id, options={"session_persistence": False})

    assert error.field == "options.session_persistence"


def test_schema_too_long_for_an_argument_is_refused() -> None:
    schema = {"type": "object", "description": "x" * MAX_ARGUMENT_BYTES}

    assert refused(output_schema=schema).field == "output_schema"


def test_good_request_passes() -> None:
    ClaudeCode().check(request(options={"model": "opus", "effort": "max"}, output_schema={"type": "object"}))


# -- health


@pytest.mark.parametrize(
    ("end", "stdout", "healthy", "version", "problem"),
    [
        (Exit(0), "2.1.330 (Claude Code)\n", True, "2.1.330", None),
        (Exit(127), "", False, None, "not found"),
        (Exit(126), "", False, None, "not executable"),
        (Exit(1, "cannot find module"), "", False, None, "cannot find module"),
        (Exit(0), "hello", False, None, "failed"),
    ],
)
def test_health(end: Exit, stdout: str, healthy: bool, version: str | None, problem: str | None) -> None:
    health = ClaudeCode(AgentConfig("/opt/claude")).health(end, stdout)

    assert (health.healthy, health.version) == (healthy, version)
    assert (problem or "") in (health.problem or "")
    assert ClaudeCode(AgentConfig("/opt/claude")).probe() == ("/opt/claude", "--version")


# -- the registry


def test_agents_are_known_by_name() -> None:
    agent = ClaudeCode()
    registry = Registry([agent])

    assert registry.get("claude-code") is agent
    assert list(registry) == [agent]


def test_unknown_agent_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidRequest, match="known: claude-code") as refusal:
        Registry([ClaudeCode()]).get("cursor")

    assert refusal.value.field == "agent"

"""`runturn agents`: what there is of each agent on each host."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from adapters.requirements import Needs
from ops.settings import Settings
from tests.integration.cli.conftest import Cli
from workers.cli.options import build_request


def _claude(path: Path, says: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def _agents(cli: Cli, *arguments: str) -> dict[str, Any]:
    said = cli("agents", "--json", *arguments)
    assert said.status == 0
    return {agent["agent"]: agent for agent in said.document["agents"]}


@pytest.fixture(autouse=True)
def no_credentials(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IS_SANDBOX", "1")  # else Claude Code refuses to run as root


def test_agent_is_described_with_its_program_its_logins_and_its_abilities(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = _claude(tmp_path / "bin" / "claude", "echo '2.1.330 (Claude Code)'")
    monkeypatch.setenv("RUNTURN_AGENTS", json.dumps({"claude-code": {"command": str(program)}}))
    assert "    logged in\n" in cli("agents").out
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret-secret-secret")
    agent = _agents(cli)["claude-code"]
    assert (agent["healthy"], agent["version"], agent["warning"]) == (True, "2.1.330", None)
    assert agent["source"] == f"runturn {version('runturn')}"
    assert (agent["host"], agent["path"], agent["problem"]) == ("local", str(program), None)
    assert agent["credentials"]["forwarded"] == ["ANTHROPIC_API_KEY"]
    assert agent["billing"] == ["api", "subscription"]
    assert agent["capabilities"]["plans"] is True
    assert agent["capabilities"]["proved_versions"][-2:] == ["2.1.197", "2.1.330"]
    assert agent["version_standing"] == "proved"
    said = cli("agents")
    assert "2.1.330" in said.out
    assert "billed: api" in said.out
    assert "sk-ant" not in said.out + cli("agents", "--json").out


@pytest.mark.parametrize(
    ("version", "status", "healthy", "words"),
    [
        ("2.1.40", 0, True, "    logged in\n"),
        ("2.1.40", 1, False, "it is not logged in: run `claude auth login` there, or set ANTHROPIC_API_KEY"),
        ("2.1.40", 3, True, "it must be logged in already"),  # it could not tell
        ("2.1.36", 1, True, "it must be logged in already"),  # without this command: it would be a prompt
    ],
)
def test_agent_is_asked_whether_it_is_logged_in(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, status: int, healthy: bool, words: str
) -> None:
    says = (
        f'case "$*" in --version) echo {version} ;; "auth status") touch {tmp_path}/asked; exit {status} ;; esac'
    )
    monkeypatch.setenv("RUNTURN_AGENT__COMMAND", str(_claude(tmp_path / "bin" / "claude", says)))
    assert _agents(cli)["claude-code"]["healthy"] is healthy
    assert words in cli("agents").out
    assert (tmp_path / "asked").exists() is (version != "2.1.36")
    (tmp_path / "asked").unlink(missing_ok=True)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x" * 20)
    assert _agents(cli)["claude-code"]["healthy"] is True
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(("user", "sandbox", "healthy"), [(0, None, False), (0, "1", True), (1000, None, True)])
def test_agent_that_refuses_root_is_told(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: int, sandbox: str | None, healthy: bool
) -> None:
    program = _claude(tmp_path / "bin" / "claude", "echo 2.1.330")
    (tmp_path / "bin" / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path / "bin" / "id").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("RUNTURN_AGENT__COMMAND", str(program))
    monkeypatch.delenv("IS_SANDBOX")
    if sandbox is not None:
        monkeypatch.setenv("IS_SANDBOX", sandbox)
    agent = _agents(cli)["claude-code"]
    assert agent["healthy"] is healthy
    assert healthy or "set IS_SANDBOX=1" in agent["problem"]


@pytest.mark.parametrize(
    ("says", "healthy", "field", "words"),
    [
        ("echo 3.0.0", True, "warning", "not tested with 3.0.0: success with tools, resume, "),
        ("echo 2.1.200", True, "warning", "2.1.197 and 2.1.330"),
        ("echo what; exit 1", False, "problem", "--version failed"),
        ("exit 0", False, "problem", "--version failed"),
        ("kill -9 $$", False, "problem", "--version failed"),
    ],
)
def test_look_never_fails_and_a_version_that_was_not_proved_is_a_warning(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, healthy: bool, field: str, words: str
) -> None:
    program = _claude(tmp_path / "bin" / "claude", says)
    monkeypatch.setenv("RUNTURN_AGENT__COMMAND", str(program))
    agent = _agents(cli)["claude-code"]
    assert agent["healthy"] is healthy
    assert words in agent[field]


def test_missing_program_and_silent_host_are_reports_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_AGENT__COMMAND", "/nowhere/claude")
    monkeypatch.setenv("RUNTURN_SSH_HOSTS", '[{"name": "gone", "address": "127.0.0.1", "port": 1}]')
    agents = cli("agents", "--json").document["agents"]
    problems = {(agent["agent"], agent["host"]): agent["problem"] for agent in agents}
    assert "/nowhere/claude not found" in problems["claude-code", "local"]
    assert "cannot be reached" in problems["claude-code", "gone"]
    assert "cannot be reached" in problems["scripted", "gone"]
    assert {agent["host"] for agent in cli("agents", "--json", "--host", "local").document["agents"]} == {"local"}
    assert cli("agents", "--host", "moon").status == 2


def test_billing_that_is_set_comes_first(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x" * 20)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("RUNTURN_AGENTS", '{"claude-code": {"billing": "subscription"}}')
    assert _agents(cli)["claude-code"]["billing"] == ["subscription", "api"]
    monkeypatch.setenv("RUNTURN_AGENTS", '{"claude-code": {"billing": "free"}}')
    said = cli("agents")
    assert (said.status, "claude-code.billing" in said.err) == (2, True)


def test_table_of_no_agent_and_options_that_make_no_sense_are_refused_by_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, words in (
        ({"clod": {}}, "clod: there is no such agent or setting"),
        ({"claude-code": {"max_turns": 0}}, "claude-code: max_turns"),
        ({"scripted": {"speed": 0}}, "scripted: speed"),
        ({"claude-code": {"allow_versions": ["latest"]}}, "must be one version, such as 1.0.128"),
    ):
        monkeypatch.setenv("RUNTURN_AGENTS", json.dumps(table))
        said = cli("agents")
        assert (said.status, words in said.err) == (2, True), said.err


def test_needs_of_the_command_line_leave_the_agent_open() -> None:
    given = {
        "prompt": "x",
        "needs": ("live", "language=python", "billing=subscription,api", "min_context_tokens=9"),
    }
    request = build_request(Settings(), given)
    assert request.agent == "auto"
    assert request.needs == Needs(
        live=True, language="python", billing=("subscription", "api"), min_context_tokens=9
    )
    assert (
        build_request(Settings(), {"prompt": "x", "agent": "scripted", "options": ('lines=["{}"]',)}).needs is None
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--need", "speed"), "needs.speed: is not a known field"),
        (("--need", "billing=gold"), "needs.billing.0"),
        (("--need", "language="), "needs.language"),
        (
            ("--agent", "claude-code", "--need", "task_type=paint"),
            "agent claude-code does not offer task_type=paint",
        ),
        (("--agent", "gemini", "--need", "structured_output"), "agent gemini does not offer structured_output"),
    ],
)
def test_need_that_makes_no_sense_or_cannot_be_met_is_refused_at_once(
    cli: Cli, arguments: tuple[str, ...], words: str
) -> None:
    said = cli("enqueue", "x", *arguments)
    assert (said.status, words in said.err) == (2, True), said.err


def test_isolation_of_each_host_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_ISOLATION", "none")
    silent = {"name": "silent", "address": "127.0.0.1", "port": 1, "isolation": "namespace"}
    monkeypatch.setenv("RUNTURN_SSH_HOSTS", json.dumps([silent]))
    assert "host local\n  isolation: none, as configured\n" in cli("agents", "--host", "local").out
    isolation = cli("agents", "--json").document["isolation"]
    assert isolation["local"] == "none, as configured"
    assert isolation["silent"].startswith("unknown: ")

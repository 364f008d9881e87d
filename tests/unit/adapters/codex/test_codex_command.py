"""From a request to Codex's command line: what is refused, and what must never stand in it."""

from __future__ import annotations

import tomllib
from typing import Any

import orjson
import pytest

from adapters.codex.adapter import Codex
from adapters.command import FILES, Command
from adapters.contract import AgentConfig, Exit, Session
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest

NEW = Session("", resume=False)
THREAD = "01a2051b-31cd-79b1-9650-a0f18aeb4a0b"


def request(**fields: Any) -> TurnRequest:
    return TurnRequest.parse({"prompt": "-- fix it", "workspace": "/work/space", "agent": "codex", **fields})


def command(session: Session = NEW, config: AgentConfig | None = None, **fields: Any) -> Command:
    codex, asked = Codex(config or AgentConfig()), request(**fields)
    codex.check(asked)
    return codex.build(asked, session)


def test_new_turn_takes_its_prompt_from_stdin() -> None:
    built = command()
    assert built.argv == (
        "codex", "exec", "--json", "--skip-git-repo-check", "--cd=/work/space", "--sandbox=workspace-write",
        "--config=analytics.enabled=false", "--config=features.memories=false", "-",
    )  # fmt: skip
    assert (built.stdin, built.cwd) == (b"-- fix it", "/work/space")
    assert [rung.name for rung in built.stop] == ["INT", "TERM", "KILL"]


def test_resumed_turn_names_its_thread() -> None:
    built = command(Session(THREAD, resume=True))
    assert built.argv[-3:] == ("resume", THREAD, "-")
    assert built.session_files is not None
    assert built.session_files.patterns == (f"sessions/*/*/*/rollout-*-{THREAD}.jsonl",)


def test_options_become_arguments() -> None:
    options = {"sandbox": "read-only", "model": "gpt-6-sol", "effort": "high", "analytics": True}
    built = command(options=options)
    assert set(built.argv) >= {
        "--sandbox=read-only", "--model=gpt-6-sol", '--config=model_reasoning_effort="high"',
        "--config=analytics.enabled=true",
    }  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [True, 3, 1.5, "a \"b\" \\ 'c' é 😀 \n\t\x7f", [1, "x", [False]], {"a b": {"c": [1]}, "d.e": "f"}, [], {}],
)
def test_overrides_are_toml(value: object) -> None:
    [argument] = [a for a in command(options={"config": {"some.thing-1": value}}).argv if "thing" in a]
    name, _, toml = argument.removeprefix("--config=").partition("=")
    assert name == "some.thing-1"
    assert tomllib.loads(f"value = {toml}")["value"] == value


@pytest.mark.parametrize(
    "config",
    [
        {"experimental_bearer_token": "x"},
        {"model_providers.x.http_headers": {"A": "b"}},
        {"model_providers": {"x": {"api_key": "b"}}},
        {"mcp_servers.x.env": {"PLAIN": "b"}},
        {"mcp_servers": {"x": {"env": {"A": "b"}}}},
        {"a": [{"password": "b"}]},
        {"model": "x"},
        {"sandbox_mode": "x"},
        {"approval_policy": "on-request"},
        {"features.memories": True},
        {"features.memory_tool": True},
        {"a b": 1},
        {"a=b": 1},
        {"": 1},
        {"a": None},
        {"a": "x" * 100_000},
    ],
)
def test_overrides_that_hold_secrets_or_make_no_sense_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"options\.config"):
        command(options={"config": config})


def test_table_of_features_does_not_turn_memories_on() -> None:
    argv = command(options={"config": {"features": {"memories": True, "other": True}}}).argv
    features = [argument for argument in argv if argument.startswith("--config=features")]
    assert features == [
        '--config=features={"memories" = true, "other" = true}',
        "--config=features.memories=false",
    ]


def test_names_of_variables_are_no_secrets() -> None:
    config = {"model_providers.x": {"env_key": "OURS", "base_url": "https://x"}, "tool_output_token_limit": 5}
    assert command(options={"config": config})


@pytest.mark.parametrize(
    "options", [{"sandbox": "none"}, {"effort": "much"}, {"model": ""}, {"model": "a\nb"}, {"colour": "red"}]
)
def test_unknown_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"options\."):
        command(options=options)


@pytest.mark.parametrize("limit", ["max_total_tokens", "max_cost_usd"])
def test_limits_that_nobody_could_watch_are_refused(limit: str) -> None:
    with pytest.raises(InvalidRequest, match=limit):
        command(**{limit: 5})


def test_schema_travels_as_a_file() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    built = command(output_schema=schema)
    assert f"--output-schema={FILES}/output-schema.json" in built.argv
    assert {name: orjson.loads(data) for name, data in built.files.items()} == {"output-schema.json": schema}


def test_plan_turn_can_change_nothing() -> None:
    assert "--sandbox=read-only" in command(plan=True, options={"sandbox": "danger-full-access"}).argv


def test_operators_defaults_hold_unless_the_request_says_otherwise() -> None:
    config = AgentConfig("/opt/codex", {"sandbox": "danger-full-access", "effort": "low"}, stop_grace_s=2.0)
    built = command(config=config, options={"effort": "max"})
    assert built.argv[0] == "/opt/codex"
    assert {"--sandbox=danger-full-access", '--config=model_reasoning_effort="max"'} <= set(built.argv)
    assert [rung.grace_s for rung in built.stop] == [2.0] * 3
    with pytest.raises(InvalidRequest, match=r"options\.sandbox"):
        Codex(AgentConfig(options={"sandbox": "none"}))


def test_health_is_read_from_its_version() -> None:
    codex = Codex(AgentConfig())
    assert codex.probe() == ("codex", "--version")
    assert codex.health(Exit(0), "codex-cli 0.169.0\n").version == "0.169.0"
    assert "install Codex" in (codex.health(Exit(127), "").problem or "")
    assert not codex.health(Exit(1, "oops"), "").healthy

"""Whatever is wrong with a request: one line that names the field and says what to do, and nothing runs twice."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status
from adapters.protocol.session_request import SessionRequest
from tests.integration.cli.conftest import Cli
from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet, told
from workers.app import QUEUE, TASK, create_app

GOOD_PROMPT = "do it"


def _one_line(text: str, *parts: str) -> None:
    assert text.count("\n") == 1, text
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("prompt", "argument", "--prompt-file")),
        (("  ",), ("prompt", "is empty")),
        (("x", "-C", "src/here"), ("workspace", "absolute path")),
        (("x", "--agent", "clod"), ("agent", "'clod'", "known: claude-code, ")),
        (("x", "--host", "not a host"), ("host",)),
        (("x", "--turn-id", "a b"), ("turn_id",)),
        (("x", "--resume", "../../etc"), ("session_id",)),
        (("x", "--env", "1ST"), ("env.0",)),
        (("x", "--label", "team"), ("labels", "'team'", "NAME=VALUE")),
        (("x", "--label", "team="), ("labels.team",)),
        (("x", "--option", "max_turns"), ("options", "NAME=VALUE")),
        (("x", "--option", "max_turn=3"), ("options.max_turn", "not a known field")),
        (("x", "--option", "max_turns=0"), ("options.max_turns", "greater than or equal to 1")),
        (("x", "--option", "permission_mode=yolo"), ("options.permission_mode", "bypassPermissions")),
        (("x", "--resume", "s1", "-o", "session_persistence=false"), ("options.session_persistence",)),
        (("x", "--turn-timeout-ms", "-1"), ("turn_timeout_ms", "greater than or equal to 1")),
        (("x", "--read-timeout-ms", "0"), ("read_timeout_ms", "greater than or equal to 1")),
        (("x", "--stall-timeout-ms", "-5"), ("stall_timeout_ms", "greater than or equal to 0")),
        (("x", "--max-total-tokens", "-1"), ("max_total_tokens", "greater than or equal to 1")),
        (("x", "--max-cost-usd", "-0.5"), ("max_cost_usd", "greater than 0")),
        (("x", "--max-cost-usd", "nan"), ("max_cost_usd", "finite")),
        (("x", "--max-attempts", "-2"), ("max_attempts", "greater than or equal to 1")),
        (("x", "--max-paid-retries", "-1"), ("max_paid_retries", "greater than or equal to 0")),
        (("x", "--max-retry-backoff-ms", "-2"), ("max_retry_backoff_ms", "greater than or equal to 1")),
        (("x", "--turn-timeout-ms", "1h"), ("--turn-timeout-ms", "not a valid integer", "--help")),
        (("x", "--deadline", "2026-12-01T18:00:00"), ("deadline", "timezone")),
        (("x", "--deadline", "tomorrow"), ("deadline",)),
        (("x", "--prompt-file", "nowhere.txt"), ("--prompt-file", "No such file")),
        (("not UTF-8: \udcff",), ("prompt", "Unicode")),  # how Python sees a byte 0xff in an argument
    ],
)
@pytest.mark.parametrize("command", ["run", "enqueue"])
def test_request_that_cannot_be_valid_is_refused_before_anything_is_started(
    cli: Cli, tmp_path: Path, command: str, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    said = cli(command, *arguments)
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, *parts)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("option", "content", "parts"),
    [
        ("--prompt-file", b"fix\0it", ("prompt", "NUL", "remove it")),
        ("--prompt-file", b"fix \xff it", ("prompt", "not UTF-8 at byte 4", "convert it")),
        ("--prompt-file", b"x" * (10 * 1024 * 1024 + 1), ("prompt", "10,485,761 bytes", "limit")),
        ("--output-schema", b"{'a'}", ("output_schema", "not JSON")),
        ("--output-schema", b'["object"]', ("output_schema", "JSON object")),
        ("--output-schema", b'{"type": "objekt"}', ("output_schema", "not a JSON Schema", "objekt")),
        ("--output-schema", b'{"type": "array"}', ("output_schema", "must describe an object")),
    ],
)
def test_file_that_cannot_be_used_is_refused(
    cli: Cli, tmp_path: Path, option: str, content: bytes, parts: tuple[str, ...]
) -> None:
    file = tmp_path / "given"
    file.write_bytes(content)
    prompt = [] if option == "--prompt-file" else [GOOD_PROMPT]
    said = cli("enqueue", *prompt, option, str(file))
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, *parts)


def test_prompt_argument_that_is_not_utf8_is_refused_by_the_real_program(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    said = subprocess.run([*RUNTURN, "enqueue", b"a\xff"], env=environment, capture_output=True, check=False)
    assert (said.returncode, said.stdout) == (2, b"")
    _one_line(said.stderr.decode(), "prompt", "Unicode")


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"prmpt": "x"}, ("prmpt", "not a known field")),
        ({"workspace": "src"}, ("workspace", "absolute path")),
        ({"workspace": None}, ("workspace",)),
        ({"prompt": "a\0b"}, ("prompt", "NUL")),
        ({"prompt": ""}, ("prompt", "is empty")),
        ({"agent": "clod"}, ("agent", "known: claude-code, ")),
        ({"host": "moon", "options": {"lines": ["{}"]}}, ("host", "known: local")),
        ({"turn_timeout_ms": -1}, ("turn_timeout_ms", "greater than or equal to 1")),
        ({"max_cost_usd": -1}, ("max_cost_usd", "greater than 0")),
        ({"output_schema": {"type": "objekt"}}, ("output_schema", "not a JSON Schema")),
        ({"agent": "claude-code", "options": {"modell": "x"}}, ("options.modell", "not a known field")),
    ],
)
def test_bad_document_of_a_producer_is_answered_with_the_field_named(
    crew: Fleet, fields: dict[str, Any], parts: tuple[str, ...]
) -> None:
    app = create_app(crew.broker.url)
    document = {"prompt": GOOD_PROMPT, "workspace": str(crew.workspace), **fields}
    sent = app.send_task(TASK, args=[document], queue=QUEUE)
    turn_id = sent.id
    answer = told(sent)
    assert (answer["status"], answer["error"]["kind"], answer["error"]["retryable"]) == (
        "failed",
        "invalid_request",
        False,
    )
    for part in parts:
        assert part in answer["error"]["message"]
    assert answer["attempts"] == 0
    assert crew.ledger.reports.turn(turn_id).error_kind == "invalid_request"


@pytest.mark.parametrize("document", [None, "x", 3, [], {"prompt": "x"}])
def test_document_that_is_no_request_at_all_is_answered(crew: Fleet, document: Any) -> None:
    sent = create_app(crew.broker.url).send_task(TASK, args=[document], queue=QUEUE)
    answer = told(sent)
    assert answer["error"]["kind"] == "invalid_request"
    assert answer["attempts"] == 0


def test_second_request_of_an_id_does_not_settle_the_first(crew: Fleet, recording: Path) -> None:
    request = crew.recorded(recording)
    app = create_app(crew.broker.url)
    turn_id = crew.client.enqueue(request)
    sent = app.send_task(
        TASK, args=[{"turn_id": turn_id, "prompt": "x", "workspace": "/", "host": "moon"}], queue=QUEUE
    )
    assert sent.get(timeout=WAIT_S)["status"] == "completed"
    assert crew.result(turn_id).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("place", "text"),
    [("missing", "no such workspace"), ("file", "not a directory")],
)
def test_workspace_that_is_not_there_fails_the_turn_once(
    fleet_cli: Cli, crew: Fleet, recording: Path, place: str, text: str
) -> None:
    (crew.root / "file").touch()
    said = fleet_cli("run", "x", "-C", str(crew.root / place), "-o", f"recording={recording}", "--json")
    assert said.status == 2
    error = said.document["error"]
    assert (error["kind"], error["retryable"], said.document["attempts"]) == ("invalid_workspace_cwd", False, 1)
    assert text in error["message"]
    assert "workspace" in error["message"]


def test_unknown_host_fails_the_turn_that_the_command_line_has_queued(fleet_cli: Cli, recording: Path) -> None:
    said = fleet_cli("run", "x", "--host", "moon", "-o", f"recording={recording}")
    assert said.status == 2
    assert "invalid_request: host: there is no host 'moon'; known: local" in said.out
    listed = fleet_cli("history", "--limit", "1", "--json").document[0]
    assert (listed["status"], listed["error_kind"], listed["attempts"]) == ("failed", "invalid_request", 0)


def test_unknown_session_fails_the_turn(fleet_cli: Cli, recording: Path) -> None:
    said = fleet_cli("run", "x", "--resume", "nobody", "-o", f"recording={recording}", "--json")
    assert (said.status, said.document["error"]["kind"], said.document["attempts"]) == (2, "session_not_found", 0)


@pytest.mark.parametrize("found", ["nothing", "not executable"])
def test_agent_that_cannot_be_started_fails_the_turn_once(fleet_cli: Cli, crew: Fleet, found: str) -> None:
    binary = crew.root / "claude"
    if found == "not executable":
        binary.write_text("#!/bin/sh\n")
    said = fleet_cli("run", "x", "--agent", "claude-code", "--json")
    assert said.status == 1
    error = said.document["error"]
    assert (error["kind"], error["retryable"], said.document["attempts"]) == ("agent_not_found", False, 1)
    assert str(binary) in error["message"]
    assert "RUNTURN_AGENT__COMMAND" in error["message"]


def test_recording_that_is_not_there_fails_the_turn_once(fleet_cli: Cli) -> None:
    said = fleet_cli("run", "x", "-o", "recording=/nowhere", "--json")
    assert (said.status, said.document["status"], said.document["attempts"]) == (1, "failed", 1)


def test_events_of_a_session_have_no_number_to_watch_from(fleet_cli: Cli, crew: Fleet) -> None:
    document = {"run_id": "no-number", "turn": {"prompt": "p", "workspace": "/w"}, "test_commands": ["true"]}
    crew.ledger.session_runs.submit(SessionRequest.parse(document), 1.0)
    crew.ledger.session_runs.cancel("no-number", 1.0)
    said = fleet_cli("watch", "no-number", "--after", "3")
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, "--after is for a single turn")


@pytest.mark.parametrize("command", ["watch", "result", "cancel"])
def test_unknown_turn_is_bad_input(fleet_cli: Cli, command: str) -> None:
    said = fleet_cli(command, "nobody")
    assert (said.status, said.out) == (2, "")
    _one_line(said.err, "no turn nobody")

"""`runturn replay` over the recordings at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.errors import KINDS
from tests.integration.cli.conftest import Cli
from tests.support.places import RECORDINGS

NAMES = sorted(path.name.removesuffix(".truth.json") for path in RECORDINGS.glob("*.truth.json"))
# By the error kind that the recorded turn ended with; everything else completed or is told apart elsewhere.
KNOWN = {
    "a_parallel_tools": None,
    "c_subagent": None,
    "d4_model_404": "invalid_request",
    "f_max_turns": "turn_failed",
    "g_max_budget": "budget_exceeded",
    "h5_529_forever": "overloaded",
    "i_401": "authentication_failed",
    "j_conn_refused": "api_unreachable",
    "l3_json_schema_never": "structured_output_missing",
    "n_SIGTERM_midstream": "turn_cancelled",
    "o3_resume_unknown": "session_not_found",
}


def _arguments(name: str, tmp_path: Path) -> list[str]:
    truth = json.loads((RECORDINGS / f"{name}.truth.json").read_text())
    stderr = tmp_path / "stderr"
    stderr.write_text(truth.get("stderr") or "")
    code = truth.get("exit_code")
    exit_code = ("--exit-code", str(code)) if code is not None else ()
    return [
        "replay",
        "--agent",
        "claude-code",
        str(RECORDINGS / f"{name}.jsonl"),
        *exit_code,
        "--stderr",
        str(stderr),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_recording_folds_into_a_result_whose_exit_status_agrees(cli: Cli, tmp_path: Path, name: str) -> None:
    said = cli(*_arguments(name, tmp_path), "--json")
    result = said.document
    assert said.err == ""
    assert (said.status == 0) == (result["status"] == "completed") == (result["error"] is None)
    assert result["error"] is None or result["error"]["kind"] in KINDS
    if name in KNOWN:
        assert (result["error"] or {}).get("kind") == KNOWN[name]


def test_replay_for_people(cli: Cli) -> None:
    said = cli("replay", "--agent", "claude-code", str(RECORDINGS / "a_parallel_tools.jsonl"))
    assert said.status == 0
    assert said.out.startswith("Done both.\n\n✓ completed in")
    assert "claude-sonnet-4-5: 1,050 in, 230 out, 7,500 cache read, 760 cache written · $0.0117" in said.out


@pytest.mark.parametrize(
    "junk", [b"", b"\n\n", b"\xff\xfe\x00 not JSON at all\n", b'{"type":"assistant"}\n', b"[]"]
)
def test_file_that_is_no_recording_is_a_failed_turn_and_no_traceback(
    cli: Cli, tmp_path: Path, junk: bytes
) -> None:
    file = tmp_path / "junk"
    file.write_bytes(junk)
    said = cli("replay", "--agent", "claude-code", str(file), "--exit-code", "1")
    assert said.status == 1
    assert "✗ failed" in said.out


def test_unknown_agent_is_named(cli: Cli) -> None:
    said = cli("replay", "--agent", "clod", str(RECORDINGS / "a_parallel_tools.jsonl"))
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("runturn: agent: there is no agent 'clod'; known: claude-code, ")


@pytest.mark.parametrize(("name", "whole"), [("whole", True), ("error", False)])
def test_session_files_tell_whether_a_turn_with_subagents_is_whole(cli: Cli, name: str, *, whole: bool) -> None:
    turn = RECORDINGS / "subagents"
    files = (str(turn / f"{name}.jsonl"), "--session-file", str(turn / f"{name}.session.jsonl"))
    said = cli("replay", "--agent", "claude-code", *files, "--json").document
    assert (said["usage_source"], said["usage_complete"]) == ("result", whole)


def test_replay_of_codex_counts_what_its_rollout_tells(cli: Cli) -> None:
    codex = RECORDINGS.parent / "codex"
    resumed = ("replay", "--agent", "codex", str(codex / "resumed.jsonl"), "--resumed", "--json")
    document = cli(*resumed, "--session-file", str(codex / "resumed.rollout.jsonl")).document
    assert (document["usage_source"], document["usage"]["input_tokens"]) == ("session_files", 902)
    assert cli(*resumed).document["usage"]["by_model"] == {}  # its stream counts the whole thread

"""What the worker knows and the turn did not ask for stays with it; what was asked for is seen nowhere else."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import redis

from tests.fakes.model_api import Hold, Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.support.processes import command_of
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("unforked")  # what /proc shows of workers counts, too

ASKED_FOR = "ghp-4f9d1c77aa0b42"
NOT_ASKED_FOR = "s3cr3t-77c1e02b9d"
SCRIPT = Script(
    "leaky",
    (
        Reply((replies.bash("env; echo $GITHUB_TOKEN >&2; exit 3"),), Usage(10, 1)),
        Reply((Text("held"), replies.bash("true")), Usage(20, 2), hold=Hold("running", 2)),
        Reply((Text(f"The token is {ASKED_FOR}, as you see"),), Usage(30, 3)),
    ),
)


def test_secrets_are_nowhere_to_be_seen(tmp_path: Path) -> None:
    environment = {
        "GITHUB_TOKEN": ASKED_FOR,
        "DATABASE_PASSWORD": NOT_ASKED_FOR,
        "CLAUDECODE": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
    }
    with claude_fleet(tmp_path, SCRIPT, environment=environment) as (fleet, api):
        turn_id = fleet.client.enqueue(
            fleet.request(env=["GITHUB_TOKEN"], options={"model": "claude-sonnet-4-5"}, turn_id="leaky")
        )
        api.gate("running").wait_until_reached()
        (agent,) = fleet.agents()
        its_own = psutil.Process(agent).environ()
        assert its_own["GITHUB_TOKEN"] == ASKED_FOR
        assert its_own["ANTHROPIC_API_KEY"] == "test-key"
        assert not {"DATABASE_PASSWORD", "CLAUDECODE", "RUNTURN_STATE_DIR"} & its_own.keys()
        assert its_own.get("CLAUDE_CODE_ENTRYPOINT") != "cli"
        _assert_not_in_any_command_line()
        api.gate("running").release()
        result = fleet.result(turn_id)
        assert result.text == "The token is [redacted:GITHUB_TOKEN], as you see"
        failed = [event["error"] for event in fleet.events(turn_id) if event["event"] == "tool_finished"]
        assert "[redacted:GITHUB_TOKEN]" in (failed[0] or "")
        fleet.assert_nothing_left()
        with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
            until(lambda: client.exists(f"celery-task-meta-{turn_id}"), "the answer")
        # Books, broker and logs: everything that we have written below the state directory.
        for file in (path for path in fleet.state.root.rglob("*") if path.is_file()):
            for secret in (ASKED_FOR, NOT_ASKED_FOR):
                assert secret.encode() not in file.read_bytes(), file


def _assert_not_in_any_command_line() -> None:
    for process in psutil.process_iter():
        line = command_of(process)
        assert ASKED_FOR not in line
        assert NOT_ASKED_FOR not in line

"""Turns of the real Claude Code whose spool lies on a disk that is full for a while, or to the end."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.support.fleets.fleet import Fleet
from tests.support.needs import need_private_mounts

SONNET = "claude-sonnet-4-5"
FILL = 'cat /dev/zero >"$RUNTURN_SPOOL/../hog"; echo filled'
FREE = 'rm "$RUNTURN_SPOOL/../hog"; echo freed'
WORK = "seq 3000"


def script(name: str, *commands: str) -> Script:
    """Runs these commands, one by one, then answers."""
    steps = [Reply((replies.bash(command),), Usage(100, 20, 30, 4)) for command in commands]
    return Script(name, (*steps, Reply((Text("all done"),), Usage(200, 22, 40, 9))))


@contextmanager
def small_fleet(root: Path, *scripts: Script, path: str = "") -> Iterator[tuple[Fleet, ModelApi]]:
    """A fleet with a disk of four megabytes for its spools; `path` goes before the host's PATH."""
    need_private_mounts()
    (home := root / "home").mkdir(parents=True)
    with ModelApi(*scripts) as api:
        environment = claude_environment(api.base_url, home, max_retries=1)
        environment |= {"PATH": path + environment["PATH"], "IS_SANDBOX": "1"}
        with Fleet(root, environment, agent__command=str(claude_binary())) as fleet:
            # The mount is seen by the worker and its turns only, and goes with them.
            mount = f"mount -t tmpfs -o size=4m none {shlex.quote(str(fleet.state.spool))}"
            fleet.start_worker(prefix=("unshare", "-rm", "sh", "-c", f'{mount}; exec "$@"', "sh"))
            yield fleet, api


def check_done(fleet: Fleet, api: ModelApi, name: str) -> None:
    result = fleet.run(fleet.request(f"do it [script:{name}]", options={"model": SONNET}))
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "all done", 1), result.error
    billed = api.bill(name).by_model[SONNET]
    booked = result.usage.by_model[SONNET]
    assert (booked.input_tokens, booked.output_tokens) == (billed.input, billed.output)
    assert result.usage_complete


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """Where fallocate can set nothing aside."""
    (folder := tmp_path / "bin").mkdir()
    (folder / "fallocate").write_text("#!/bin/sh\nexit 1\n")
    (folder / "fallocate").chmod(0o755)
    return f"{folder}:"


def test_turn_on_a_full_disk_prints_into_the_room_set_aside_for_it(tmp_path: Path) -> None:
    with small_fleet(tmp_path / "fleet", script("full", WORK, FILL, WORK)) as (fleet, api):
        check_done(fleet, api, "full")


def test_agent_that_could_not_print_all_of_its_output_has_succeeded(tmp_path: Path, bare_path: str) -> None:
    with small_fleet(tmp_path / "fleet", script("while", WORK, FILL, WORK, FREE), path=bare_path) as (fleet, api):
        check_done(fleet, api, "while")


def test_agent_whose_answer_only_its_session_file_has_has_succeeded(tmp_path: Path, bare_path: str) -> None:
    with small_fleet(tmp_path / "fleet", script("end", WORK, FILL, WORK), path=bare_path) as (fleet, api):
        check_done(fleet, api, "end")

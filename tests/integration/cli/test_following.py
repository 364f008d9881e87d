"""`run` and `watch`: to the end, from the middle, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from tests.integration.cli.conftest import Cli
from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet, slow_recording
from tests.support.fleets.live_fleet import LiveFleet
from tests.support.waiting import until


class Program:
    """`runturn` as a process, to be interrupted."""

    def __init__(self, fleet: Fleet, *arguments: str, stdout: int = subprocess.PIPE) -> None:
        self.process = subprocess.Popen(
            [*RUNTURN, *arguments],
            env=fleet.environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def says(self, text: str) -> None:
        """Wait for a line on stderr that holds the text."""
        assert self.process.stderr is not None
        assert any(text in line for line in self.process.stderr), text

    def ended(self) -> tuple[int, str, str]:
        """Its exit status and what else it has said."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err


@pytest.fixture
def slow(recording: Path, tmp_path: Path) -> Path:
    """A recording that nobody waits for: it is interrupted."""
    return slow_recording(tmp_path / "slow.jsonl", recording, 60_000)


@pytest.fixture
def unhurried(recording: Path, tmp_path: Path) -> Path:
    """A recording that takes long enough to be joined on its way."""
    return slow_recording(tmp_path / "unhurried.jsonl", recording, 300)


def _run(fleet: Fleet, recording: Path, turn_id: str) -> Program:
    options = ("--agent", "scripted", "-C", str(fleet.workspace), "-o", f"recording={recording}")
    return Program(fleet, "run", "do it", *options, "--turn-id", turn_id)


def test_run_shows_what_happens_on_stderr_and_the_result_on_stdout(fleet: Fleet, recording: Path) -> None:
    fleet.start_worker()
    with _run(fleet, recording, "plain") as program:
        status, out, err = program.ended()
    assert status == 0
    assert "→ Bash echo one" in err
    assert "Done both." not in err  # it is the result
    assert out.startswith("Done both.\n\n✓ completed")
    assert "turn plain" in out


def test_ctrl_c_cancels_the_turn(fleet: Fleet, slow: Path) -> None:
    fleet.start_worker()
    with _run(fleet, slow, "stopped") as program:
        program.says("session")
        program.interrupt()
        status, out, err = program.ended()
    assert (status, "cancelling the turn" in err) == (130, True)
    assert "✗ cancelled" in out
    assert fleet.result("stopped").status is Status.CANCELLED
    fleet.assert_nothing_left()


def test_sigterm_ends_the_command_and_leaves_the_turn_to_its_worker(
    fleet: Fleet, recording: Path, tmp_path: Path
) -> None:
    fleet.start_worker()
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1500)
    with _run(fleet, slow, "left") as program:
        program.says("session")
        program.process.terminate()
        status, out, _ = program.ended()
    assert (status, out) == (-signal.SIGTERM, "")
    assert fleet.result("left").status is Status.COMPLETED


def test_second_ctrl_c_leaves_the_turn_to_its_worker(fleet: Fleet, slow: Path) -> None:
    fleet.start_worker()
    with _run(fleet, slow, "left") as program:
        program.says("session")
        (agent,) = fleet.agents()
        os.kill(agent, signal.SIGSTOP)  # so that it takes seconds to end it
        program.interrupt()
        program.says("cancelling the turn")
        program.interrupt()
        status, out, err = program.ended()
    assert (status, out) == (130, "")
    assert "no longer waiting for the turn; see: runturn result left" in err
    assert fleet.result("left").status is Status.CANCELLED
    fleet.assert_nothing_left()


def test_watch_from_the_middle_gets_all_events(fleet: Fleet, unhurried: Path) -> None:
    fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(unhurried))
    until(lambda: len(fleet.events(turn_id)) > 2, "the turn to be under way")
    with Program(fleet, "watch", "--jsonl", turn_id) as program:
        status, out, err = program.ended()
    assert (status, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert events == fleet.events(turn_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["event"] == "turn_settled"


def test_ctrl_c_at_watch_leaves_the_turn_alone(tmp_path: Path, recording: Path) -> None:
    with LiveFleet(tmp_path) as fleet:
        fleet.start_worker()
        turn = fleet.talking(recording)
        with Program(fleet, "watch", turn) as program:
            program.says("session")
            program.interrupt()
            assert program.ended()[0] == 130
        turn.finish()
        assert fleet.result(turn).status is Status.COMPLETED


@pytest.mark.parametrize(
    "interrupt",
    [
        "exec('raise KeyboardInterrupt')",  # as where a dataclass is being made
        "weakref.finalize(type('Lock', (), {})(), signal.raise_signal, signal.SIGINT); time.sleep(90)",  # ignored
    ],
)
def test_ctrl_c_while_something_is_imported_has_the_same_exit_status(tmp_path: Path, interrupt: str) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import signal, time, weakref\n"
        "from workers.__main__ import main\n"
        "from workers.cli.main import cli\n"
        "def interrupted(*_, **__):\n"
        f"    {interrupt}\n"
        "cli.main = interrupted\n"
        "main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-m", "interrupted"], env=environment, timeout=WAIT_S, check=False)
    assert said.returncode == 130


def test_watch_outlives_the_broker(fleet: Fleet, unhurried: Path) -> None:
    fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(unhurried))
    with Program(fleet, "watch", "--jsonl", turn_id) as program:
        assert program.process.stdout is not None
        lines = [program.process.stdout.readline()]
        fleet.broker.stop()
        until(lambda: not fleet.broker.running(), "the broker to be gone")
        fleet.broker.ensure()
        lines += program.process.stdout
        status, _, err = program.ended()
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in lines] == fleet.events(turn_id)


def test_watch_after_the_end_shows_all_and_the_result(fleet_cli: Cli, crew: Fleet, recording: Path) -> None:
    turn_id = crew.run(crew.recorded(recording)).turn_id
    said = fleet_cli("watch", turn_id)
    assert said.status == 0
    assert "→ Bash echo one" in said.err
    assert "Done both." in said.out
    later = fleet_cli("watch", "--jsonl", "--after", "3", turn_id)
    assert json.loads(later.out.partition("\n")[0])["seq"] == 4


def test_default_agent_is_the_configured_one_unless_the_request_names_another(
    fleet_cli: Cli, recording: Path
) -> None:
    assert fleet_cli("run", "x", "-o", f"recording={recording}").status == 0  # crew's is `scripted`
    named = fleet_cli("run", "x", "--agent", "claude-code", "--json").document
    assert named["error"]["kind"] == "agent_not_found"  # the real one, which is missing


def test_same_turn_id_again_shows_the_same_turn(fleet_cli: Cli, crew: Fleet, recording: Path) -> None:
    arguments = ("run", "x", "-o", f"recording={recording}", "--turn-id", "twice", "--json")
    assert fleet_cli(*arguments).document == fleet_cli(*arguments).document
    names = [event["event"] for event in crew.events("twice")]
    assert names.count("attempt_started") == 1


def test_reader_that_leaves_is_no_traceback(crew: Fleet, recording: Path) -> None:
    turn_id = crew.run(crew.recorded(recording)).turn_id
    reads, writes = os.pipe()
    os.close(reads)
    with Program(crew, "watch", "--jsonl", turn_id, stdout=writes) as program:
        os.close(writes)
        status, _, err = program.ended()
    assert (status, err) == (1, "")

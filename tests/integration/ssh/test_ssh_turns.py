"""Turns over SSH: nothing of what goes there or comes from there is changed, cut, or mixed with anything else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status, TurnResult
from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet
from tests.support.needs import need, need_root
from tests.support.places import RECORDINGS
from tests.support.ssh.accounts import SHELLS, account
from tests.support.ssh.ssh_host import Gate, assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until

RECORDING = (RECORDINGS / "a_parallel_tools.jsonl").read_text()
ANSWER = "Done both."  # of that recording
# In the language of any shell; a plain POSIX shell has start-up files for logins without a command only.
NOISE = "sh -c 'echo noise; echo complaint >&2; echo ran >>~/ran'\n"
READ_FOR_COMMANDS = {"bash", "fish", "tcsh"}
_LINE = "süß 😀 'single' \"double\" \\n \\\\ $HOME `id` %s !x ~ # \t\r\x01\x1b[0m\x7f\n"
PROMPT = _LINE * (5_000_000 // len(_LINE.encode()) + 1)


LONG = " ".join(map(str, range(1_450_000)))  # ten million bytes
_MOAN = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2"


def install(login: Login, name: str, script: str, recording: str = RECORDING) -> str:
    """Put an agent on a host, with a recording beside it, "$0.recording"; return its path."""
    told = "case $1 in --version) echo '2.1.330 (Claude Code)'; exit ;; esac"
    path = login.program(name, f"#!/bin/sh\n{told}\n{script}\n")
    Path(f"{path}.recording").write_text(recording)
    return str(path)


def answering(expression: str) -> str:
    """What an agent does that answers with what its shell makes of an expression."""
    return f'answer={expression}\nexec sed "s/{ANSWER}/$answer/" "$0.recording"'


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, dict[str, Login]]]:
    """A host for each kind of login shell, with a start-up file that prints; its agent digests its prompt."""
    need_root()
    need("sshd")
    root = tmp_path_factory.mktemp("shells")
    with ExitStack() as stack:
        sshd = stack.enter_context(Sshd())
        logins, hosts = {}, []
        for shell in SHELLS:
            user = stack.enter_context(account(shell))
            user.write_startup(NOISE)
            login = logins[shell] = Login(sshd, user, shell, user.home / "turns")
            stack.callback(login.clean_up)
            agent = install(login, "digests", answering('"$(sha256sum | tr -dc 0-9a-f) $(id -un)"'))
            hosts.append(login.setting(agents={"claude-code": agent}))
        fleet = stack.enter_context(Fleet(root, ssh_hosts=ssh_hosts(*hosts)))
        fleet.start_worker()
        yield fleet, logins


@pytest.mark.parametrize("shell", SHELLS)
def test_prompt_of_five_megabytes_arrives_as_it_is_whatever_the_login_shell_is_and_prints(
    shells: tuple[Fleet, dict[str, Login]], shell: str
) -> None:
    fleet, logins = shells
    login = logins[shell]
    result = fleet.run(login.request(fleet, PROMPT))
    assert (result.status, result.host) == (Status.COMPLETED, shell), result.error
    assert result.text.split() == [hashlib.sha256(PROMPT.encode()).hexdigest(), login.account.name]
    told = json.dumps(fleet.events(result.turn_id))
    assert "noise" not in told
    assert "complaint" not in told
    assert (login.account.home / "ran").exists() == (shell in READ_FOR_COMMANDS)
    until(lambda: not login.left(), f"the end of {login.left()}")


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet with one worker; one machine is a host for each of several agents, by these names."""

    fleet: Fleet
    login: Login
    gate: Gate

    def run(self, host: str, **fields: Any) -> TurnResult:
        """A turn of the agent there."""
        return self.fleet.run(self.fleet.request(host=host, **fields))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("turns")
    with ssh_host("h1", root) as login:
        gate = Gate(root / "gate")
        names = answering("\"$(env | sed 's/=.*//' | tr '\\n' ' ')\"")
        agents = {
            "talks": install(login, "talks", 'cat "$0.recording"', _with_answer(LONG)),
            "moans": install(login, "moans", f'{_MOAN}; cat "$0.recording"'),
            "breaks": install(login, "breaks", f"{_MOAN}; echo 'so it ends' >&2; exit 3"),
            "names": install(login, "names", names),
            "waits": install(login, "waits", f'head -n 3 "$0.recording"; {gate.wait}; tail -n +4 "$0.recording"'),
        }
        hosts = [
            login.setting(name=name, agents={"claude-code": agent}, env=["OF_HOST", "NOT_SET"])
            for name, agent in agents.items()
        ]
        variables = {"OF_HOST": "1", "OF_TURN": "2", "WITHHELD": "3", "ANTHROPIC_API_KEY": "of-the-worker"}
        environment = {"PATH": os.environ["PATH"], "HOME": str(root), **variables}
        with Fleet(root, environment, ssh_hosts=ssh_hosts(*hosts)) as fleet:
            fleet.start_worker()
            yield Place(fleet, login, gate)


def _with_answer(answer: str) -> str:
    """The recording with another final answer."""
    *others, last = RECORDING.splitlines()
    return "\n".join([*others, last.replace(ANSWER, answer)]) + "\n"


def test_line_of_ten_megabytes(place: Place) -> None:
    result = place.run("talks")
    assert result.status is Status.COMPLETED
    assert len(LONG) > 10_000_000
    assert result.text == LONG


def test_three_megabytes_of_complaints_do_no_harm(place: Place) -> None:
    result = place.run("moans")
    assert (result.status, result.text) == (Status.COMPLETED, ANSWER)


def test_last_of_three_megabytes_of_complaints_is_told(place: Place) -> None:
    error = place.run("breaks").error
    assert error is not None
    assert (error.kind, error.message) == ("port_exit", "the agent exited with status 3: so it ends")


def test_agent_sees_no_variable_of_the_worker_that_was_not_named(place: Place) -> None:
    seen = set(place.run("names", env=["OF_TURN"]).text.split())
    assert seen >= {"OF_HOST", "OF_TURN", "HOME", "PATH"}
    assert not seen & {"WITHHELD", "NOT_SET", "ANTHROPIC_API_KEY", "RUNTURN_STATE_DIR"}


def test_events_are_seen_while_they_happen(place: Place) -> None:
    turn_id = place.fleet.client.enqueue(place.fleet.request(host="waits"))
    argv = [*RUNTURN, "watch", "--jsonl", turn_id]
    with subprocess.Popen(argv, env=place.fleet.environment, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        events = []
        while not events or events[-1]["event"] != "tool_started":
            events.append(json.loads(watching.stdout.readline()))
        assert events[0]["host"] == "waits"
        assert place.fleet.ledger.reports.result(turn_id) is None
        place.gate.open()
        events += map(json.loads, watching.stdout)
        assert watching.wait(WAIT_S) == 0
    assert events == place.fleet.events(turn_id)
    assert events[-1]["event"] == "turn_settled"


def test_run_shows_what_happens_there(place: Place) -> None:
    said = place.fleet.command("run", "do it", "-C", str(place.fleet.workspace), "--host", "moans")
    assert said.returncode == 0, said.stderr
    assert "▸ claude-code 2.1.330 on moans, attempt 1" in said.stderr
    assert "→ Bash echo two" in said.stderr
    assert said.stdout.startswith(ANSWER)


def test_nothing_of_all_this_is_left(place: Place) -> None:
    assert_nothing_left(place.login)

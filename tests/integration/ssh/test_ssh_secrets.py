"""Secrets and turns over SSH: what a turn asks for, its agent alone sees; all else stays with the worker."""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters.protocol.result import Status, TurnResult
from tests.support.fleets.fleet import Fleet
from tests.support.leaks import places
from tests.support.needs import need, need_root
from tests.support.places import RECORDINGS
from tests.support.processes import signed
from tests.support.ssh.accounts import Account, account
from tests.support.ssh.ssh_host import Gate, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until
from workers.events.bus import Subscription

pytestmark = pytest.mark.usefixtures("unforked")  # what /proc shows of workers counts, too

ASKED_FOR = {
    "GITHUB_TOKEN": secrets.token_hex(12),
    "DEPLOY_SITE": secrets.token_hex(12),
}  # by the turn, by its host
WITHHELD = {name: secrets.token_hex(12) for name in ("DATABASE_PASSWORD", "ANTHROPIC_API_KEY", "COLOUR")}
TURN = f"secretive-{secrets.token_hex(4)}"
PROMPT = f"do it {secrets.token_hex(12)}"
RECORDED = "Done both."  # other tests have agents that say this at the same time
ANSWER = f"Done both {secrets.token_hex(12)}."
OF_THE_OBSERVER = secrets.token_hex(12)

# A start-up file that keeps all that is sent to the account's shells, and the environment that they begin with.
TAP = """
env >"$HOME/tapped/$$.environment"
exec < <(exec tee "$HOME/tapped/$$.input" 2>/dev/null)
"""
LOOKS = {
    "processes": "ps -efww; cat /proc/[0-9]*/cmdline",
    "environments": "cat /proc/[0-9]*/environ",
    "spools": 'cat "$SPOOLS"/*/*',
}

Evidence = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that can be seen of one turn."""

    during: Evidence  # while its agent runs
    after: Evidence  # when nothing of it runs any more
    ever: Evidence  # command lines and the broker's traffic, from before the turn till after it
    agent: dict[str, str]  # its environment
    spools: dict[str, int]  # the modes of all files and directories there
    state: dict[str, int]  # and of those of the worker
    result: TurnResult
    key: str  # a line of the private key that the worker logs in with


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    need_root()
    need("ps")
    need("sshd")
    root = tmp_path_factory.mktemp("secrets")
    with Sshd("AcceptEnv *", log_level="DEBUG3") as sshd, account("bash") as owner, account("dash") as somebody:
        owner.write_startup(TAP)
        owner.own(owner.home / "tapped")
        login = Login(sshd, owner, "h1", owner.home / "turns")
        yield watch_a_turn(root, login, {"root": None, "its owner": owner, "somebody": somebody})
        login.clean_up()


def watch_a_turn(root: Path, login: Login, observers: dict[str, Account | None]) -> Seen:
    agent = login.program(
        "agent",
        '#!/bin/sh\n[ "$1" != --version ] || exit\nhead -n 3 "$0.said"\n: <"$0.gate"\ntail -n +4 "$0.said"\n',
    )
    Path(f"{agent}.said").write_text((RECORDINGS / "a_parallel_tools.jsonl").read_text().replace(RECORDED, ANSWER))
    gate = Gate(Path(f"{agent}.gate"))
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), **ASKED_FOR, **WITHHELD}
    hosts = ssh_hosts(login.setting(agents={"claude-code": str(agent)}, env=["DEPLOY_SITE"]))
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(root, environment, ssh_hosts=hosts))
        traffic = stack.enter_context(broker_traffic(fleet.broker.socket))
        command_lines = stack.enter_context(all_command_lines())
        stack.enter_context(Subscription(fleet.broker.url, TURN))  # live events are sent to who watches
        fleet.start_worker()
        turn_id = fleet.client.enqueue(login.request(fleet, PROMPT, turn_id=TURN, env=["GITHUB_TOKEN"]))
        spool = login.spools / f"{turn_id}.1"
        until(lambda: login.printed(spool.name) and len(fleet.events(turn_id)) > 1, "a turn that is under way")
        during = look_around(fleet, login, observers)
        its_own = psutil.Process(signed(spool, "agent")).environ()
        spools, state = modes(login.spools), modes(fleet.state.root)
        gate.open()
        result = fleet.result(turn_id)
        gate.close()
        until(lambda: not login.left() and not any(login.spools.iterdir()), "the end of the turn")
        # Celery tells its monitors after it has stored the result.
        until(lambda: places("task-succeeded", {"traffic": bytes(traffic)}), "monitors that were told")
        after = look_around(fleet, login, observers)
        ever = {"command lines": b"\n".join(command_lines), "broker's traffic": bytes(traffic)}
    key = login.sshd.client_key.read_text().splitlines()[2]
    return Seen(during, after, ever, its_own, spools, state, result, key)


def look_around(fleet: Fleet, login: Login, observers: dict[str, Account | None]) -> Evidence:
    """Everything that somebody could look into."""
    tapped = login.account.home / "tapped"
    with sqlite3.connect(fleet.state.root / "ledger.sqlite3") as ledger:
        tables = "\n".join(ledger.iterdump())
    found = {
        f"{look} for {who}": seen_by(observer, command, login.spools)
        for look, command in LOOKS.items()
        for who, observer in observers.items()
    }
    return found | {
        "channels": contents(tapped, "*.input"),
        "environments of logins": contents(tapped, "*.environment"),
        "files of turns": contents(login.folder, "*"),
        "sshd's log": login.sshd.log().encode(),
        "worker's log": contents(fleet.state.logs, "*"),
        "worker's files": contents(fleet.state.root, "*"),
        "ledger": tables.encode(),
    }


def seen_by(observer: Account | None, command: str, spools: Path) -> bytes:
    """What a command shows to an account; None is whoever runs the tests."""
    who: dict[str, Any] = {"user": observer.uid, "group": observer.gid, "extra_groups": []} if observer else {}
    environment = {"PATH": os.environ["PATH"], "SPOOLS": str(spools), "MINE": OF_THE_OBSERVER}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, check=False, **who)
    return bytes(done.stdout + done.stderr)


def contents(folder: Path, pattern: str) -> bytes:
    """All files below a folder, one after the other, with their names."""
    found = []
    for path in folder.rglob(pattern):
        with suppress(OSError):  # a fifo without a writer, a socket, a file that has gone
            found += [str(path).encode(), path.read_bytes() if path.is_file() else b""]
    return b"\n".join(found)


def modes(folder: Path) -> dict[str, int]:
    """Of a folder and everything below it."""
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o7777 for path in (folder, *folder.rglob("*"))}


@contextmanager
def all_command_lines() -> Iterator[set[bytes]]:
    """The command lines of all processes that there are, however short they live."""
    seen: set[bytes] = set()
    enough = threading.Event()

    def watch() -> None:
        while not enough.wait(0.005):
            for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - twice as fast as paths are
                with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb", buffering=0) as line:  # noqa: PTH123
                    seen.add(line.read())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        enough.set()
        watching.join()


@contextmanager
def broker_traffic(path: Path, password: str = "") -> Iterator[bytearray]:
    """All commands that reach the broker: messages, results, live events, and what Celery tells its monitors."""
    heard = bytearray()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.connect(str(path))
        if password:
            listener.sendall(f"AUTH {password}\r\n".encode())
            assert listener.recv(100) == b"+OK\r\n"
        listener.sendall(b"MONITOR\r\n")

        def listen() -> None:
            while data := listener.recv(65_536):
                heard.extend(data)

        listening = threading.Thread(target=listen)
        listening.start()
        until(lambda: heard.startswith(b"+OK"), "a broker that tells")
        try:
            yield heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listening.join()


def test_the_agent_has_what_was_asked_for_and_nothing_else_of_the_worker(seen: Seen) -> None:
    assert (seen.result.status, seen.result.text) == (Status.COMPLETED, ANSWER)
    assert ASKED_FOR.items() <= seen.agent.items()
    assert not seen.agent.keys() & WITHHELD.keys()
    assert [name for name in seen.agent if name.startswith("RUNTURN_")] == ["RUNTURN_SPOOL"]


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_was_asked_for_travels_in_channels_and_shows_only_to_those_who_own_the_agent(
    seen: Seen, name: str
) -> None:
    of_processes = {"environments for root", "environments for its owner"}
    assert places(ASKED_FOR[name], seen.during) == {"channels", *of_processes}
    assert places(ASKED_FOR[name], seen.after) == {"channels", "environments for root"}  # the worker has it, still
    assert not places(ASKED_FOR[name], seen.ever)


@pytest.mark.parametrize("name", WITHHELD)
def test_what_was_not_asked_for_stays_in_the_worker(seen: Seen, name: str) -> None:
    for evidence in (seen.during, seen.after):
        assert places(WITHHELD[name], evidence) == {"environments for root"}
    assert not places(WITHHELD[name], seen.ever)


def test_the_key_that_opens_hosts_shows_nowhere(seen: Seen) -> None:
    for evidence in (seen.during, seen.after, seen.ever):
        assert not places(seen.key, evidence)


def test_the_search_finds_what_is_there_wherever_one_looks(seen: Seen) -> None:
    observers = ("root", "its owner", "somebody")
    with_prompt = {
        "spools for root",
        "spools for its owner",
        "channels",
        "files of turns",
        "ledger",
        "worker's files",
    }
    expected = {
        seen.agent["RUNTURN_SPOOL"]: {f"processes for {who}" for who in observers},
        OF_THE_OBSERVER: {f"environments for {who}" for who in observers},
        PROMPT: with_prompt,
        "SSH_CONNECTION=": {"environments of logins"},
        " req exec": {"sshd's log"},
        "worker is ready": {"worker's log"},
    }
    assert set().union(*expected.values()) == seen.during.keys() - {"spools for somebody"}
    for text, names in expected.items():
        assert names <= places(text, seen.during), text
    # The message and the result; a live event, and what Celery tells its monitors.
    for text in (PROMPT, ANSWER):
        assert places(text, seen.ever) == {"broker's traffic"}, text
    for text in ("tool_finished", "task-succeeded"):
        assert "broker's traffic" in places(text, seen.ever), text
    assert "command lines" in places(seen.agent["RUNTURN_SPOOL"], seen.ever)


def test_nobody_else_can_look_into_a_spool(seen: Seen) -> None:
    assert b"Permission denied" in seen.during["spools for somebody"]
    assert "spools for somebody" not in places(PROMPT, seen.during)
    folders = {name for name in seen.spools if "/" not in name or name.endswith("/files")}
    assert len(folders) == 3
    assert {seen.spools[name] for name in folders} == {0o700}
    assert {mode for name, mode in seen.spools.items() if name not in folders} == {0o600}


def test_nobody_else_can_look_into_the_files_of_a_worker(seen: Seen) -> None:
    folders = {".", "spool", "logs", "broker"}
    assert {seen.state[name] for name in folders} == {0o700}
    assert {"known_hosts", "known_hosts.lock", "ledger.sqlite3"} <= seen.state.keys()
    assert {mode for name, mode in seen.state.items() if "/" not in name and name not in folders} == {0o600}

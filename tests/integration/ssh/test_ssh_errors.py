"""What goes wrong with a host, or on it: told apart by kind, with the host named and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.protocol.result import ErrorInfo, Status, TurnResult
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.support.ssh import keys
from tests.support.ssh.links import Link, need_links
from tests.support.ssh.ssh_host import assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import lines_of

RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
_INIT = RECORDING.read_text().partition("\n")[0]
_PROGRAMS = {
    "without-interpreter": "#!/usr/bin/env no-such-interpreter\n",
    "ends-with-255": f"#!/bin/sh\necho '{_INIT}'\necho 'it was no connection' >&2\nexit 255\n",
    "counted": '#!/bin/sh\necho started >>"$0.log"\nexec awk "$@"\n',
    "not-executable": "",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet whose hosts fail, each in a way of its own."""

    fleet: Fleet
    up: Login  # nothing is wrong with its sshd
    anew: Login  # this one's machine was set up anew
    addresses: dict[str, str]  # by host
    turns: dict[str, str]  # by host: one is under way on each that lets nobody in, for they are given up slowly

    def fails(self, host: str) -> ErrorInfo:
        """Why the turn on that host has failed, in its only attempt."""
        return failed(self.fleet.result(self.turns[host]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("errors")
    with ExitStack() as stack:
        up = stack.enter_context(ssh_host("up", root))
        failing = {name: stack.enter_context(ssh_host(name, root)) for name in ("refusing", "silent", "anew")}
        link = stack.enter_context(Link()) if Link.available() is None else None
        if link is not None:
            failing["cut-off"] = stack.enter_context(ssh_host("cut-off", root, link))
        hosts = [login.setting(agents={}) for login in (up, *failing.values())]
        hosts += _misconfigured(up)
        many = {"agent__max_concurrent_agents": "20", "agent__command": "no-such-agent"}
        fleet = stack.enter_context(
            Fleet(root, ssh_hosts=ssh_hosts(*hosts), ssh__connect_timeout_ms="6000", **many)
        )
        failing["refusing"].sshd.stop()
        failing["silent"].sshd.freeze()
        if link is not None:
            link.cut()
        fleet.start_worker()
        assert fleet.run(fleet.recorded(RECORDING, host="anew")).status is Status.COMPLETED
        failing["anew"].sshd.restart(new_host_key=True)
        closed = (*failing, "nowhere", "stranger", "nobody", "without-key")
        turns = {
            name: fleet.client.enqueue(fleet.recorded(RECORDING, host=name, max_attempts=1)) for name in closed
        }
        addresses = {str(host["name"]): f"{host['address']}:{host['port']}" for host in hosts}
        yield Place(fleet, up, failing["anew"], addresses, turns)


def _misconfigured(up: Login) -> list[dict[str, object]]:
    """More hosts on the same sshd: each with one field that is wrong, or an agent that is."""
    programs = {name: up.program(name, text) for name, text in _PROGRAMS.items()}
    programs["not-executable"].chmod(0o644)
    stranger = keys.new_key(up.folder / "stranger")
    return [
        up.setting(name="nowhere", address="255.255.255.255"),  # for which the kernel sends nothing
        up.setting(name="stranger", identity=str(stranger)),
        up.setting(name="nobody", user="no-such-user"),
        up.setting(name="without-key", identity=str(up.folder / "no-such-key")),
        up.setting(name="without-agent", agents={"claude-code": str(up.folder / "no-such-agent")}),
        up.setting(
            name="rooted",
            agents={"scripted": str(programs["counted"])},
            workspace_roots=[str(up.folder / "allowed")],
        ),
        *(
            up.setting(name=name, agents={"claude-code": str(programs[name])})
            for name in programs.keys() - {"counted"}
        ),
    ]


def failed(result: TurnResult, attempts: int = 1) -> ErrorInfo:
    """Why a turn has failed, after so many attempts."""
    assert result.error is not None
    assert (result.status, result.attempts) == (Status.FAILED, attempts), result.error
    return result.error


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("refusing", "cannot be reached: Connection refused. Check its address and port"),
        ("nowhere", "cannot be reached: Network is unreachable. Check its address and port"),
        ("silent", "did not answer within the connect timeout. Check its address"),
        ("cut-off", "did not answer within the connect timeout. Check its address"),
    ],
)
def test_host_that_cannot_be_connected_to_is_unreachable(place: Place, host: str, says: str) -> None:
    if host == "cut-off":
        need_links()
    error = place.fails(host)
    assert (error.kind, error.retryable) == ("host_unreachable", True)
    assert error.message.startswith(f"host {host}: ")
    assert f"{place.addresses[host]} {says}" in error.message


def test_changed_host_key_is_shown_and_nobody_logs_in(place: Place) -> None:
    anew, error = place.anew, place.fails("anew")
    assert (error.kind, error.retryable) == ("host_key_changed", False)
    assert error.message.startswith("host anew: ")
    assert f"It offers ssh-ed25519 {anew.sshd.host_fingerprint}; recorded: ssh-ed25519 SHA256:" in error.message
    assert f"ssh-keygen -R '[{anew.sshd.host}]:{anew.sshd.port}' -f {place.fleet.state.root}" in error.message
    assert "Accepted publickey" not in anew.sshd.log().rpartition("Server listening on")[2]


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("stranger", "refuses the login: Permission denied"),
        ("nobody", "refuses the login: Permission denied for user no-such-user"),
        ("without-key", "cannot be read: No such file or directory"),
    ],
)
def test_refused_login_is_told_from_a_host_out_of_reach(place: Place, host: str, says: str) -> None:
    error = place.fails(host)
    assert (error.kind, error.retryable) == ("host_auth_failed", False)
    assert error.message.startswith(f"host {host}: ")
    assert says in error.message


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("up", "the agent's program was not found: no-such-agent; install it there"),
        ("without-agent", "no-such-agent; install it there, or set its path"),
        ("not-executable", "not-executable; make it executable"),
        ("without-interpreter", "could not be started (exit status 127): "),
        (
            "without-interpreter",
            "env: 'no-such-interpreter': No such file or directory",
        ),  # some begin: /usr/bin/env
    ],
)
def test_agent_that_cannot_be_started_is_not_found(place: Place, host: str, says: str) -> None:
    error = failed(place.fleet.run(place.fleet.request(host=host)))
    assert (error.kind, error.retryable) == ("agent_not_found", False)
    assert error.message.startswith(f"host {host}: ")
    assert says in error.message


def test_agent_that_ends_with_255_is_no_lost_connection(place: Place) -> None:
    result = place.fleet.run(place.fleet.request(host="ends-with-255", max_attempts=2))
    error = failed(result, attempts=2)
    assert (error.kind, error.retryable, result.exit_code) == ("port_exit", True, 255)
    assert error.message == "the agent exited with status 255: it was no connection"


@pytest.fixture(scope="module")
def allowed(place: Place) -> Path:
    """The only directory that the host `rooted` allows, with ways into it and out of it."""
    folder = place.up.folder / "allowed"
    for name in ("allowed/inside", "allowed-not", "outside"):
        (place.up.folder / name).mkdir(parents=True)
    (folder / "way-out").symlink_to(place.up.folder / "outside")
    (place.up.folder / "way-in").symlink_to(folder / "inside")
    return folder


@pytest.mark.parametrize(
    ("workspace", "says"),
    [
        ("../outside", "outside the directories that this host allows"),
        ("../allowed-not", "outside the directories that this host allows"),
        ("inside/../../outside", "outside the directories that this host allows"),
        ("way-out", "outside the directories that this host allows"),
        ("missing", "there is no such workspace"),
    ],
)
def test_workspace_elsewhere_is_refused_and_nothing_starts(
    place: Place, allowed: Path, workspace: str, says: str
) -> None:
    before = starts(place.up)
    result = place.fleet.run(place.fleet.recorded(RECORDING, host="rooted", workspace=f"{allowed}/{workspace}"))
    error = failed(result)
    assert (error.kind, error.retryable) == ("invalid_workspace_cwd", False)
    assert error.message.startswith("host rooted: ")
    assert says in error.message
    assert starts(place.up) == before
    assert_nothing_left(place.up)


@pytest.mark.parametrize("workspace", [".", "inside", "../allowed/inside/", "../way-in"])
def test_workspace_that_leads_inside_is_allowed(place: Place, allowed: Path, workspace: str) -> None:
    before = starts(place.up)
    result = place.fleet.run(place.fleet.recorded(RECORDING, host="rooted", workspace=f"{allowed}/{workspace}"))
    assert (result.status, starts(place.up)) == (Status.COMPLETED, before + 1)


def starts(login: Login) -> int:
    """How often the agent of the host `rooted` was started."""
    counted = login.folder / "counted.log"
    return len(lines_of(counted))

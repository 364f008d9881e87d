"""The laboratory itself, shown with OpenSSH's own client."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.needs import need
from tests.support.places import ROOT
from tests.support.ssh import keys
from tests.support.ssh.accounts import SHELLS, Account, account, own_account
from tests.support.ssh.links import Link, need_links
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _openssh() -> None:
    need("sshd")
    need("ssh")


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


@pytest.fixture(params=SHELLS)
def user(request: pytest.FixtureRequest) -> Iterator[Account]:
    with account(request.param) as found:
        yield found


class Client:
    """An `ssh` that runs a `cat`, and so shows whether anything comes across."""

    def __init__(self, sshd: Sshd) -> None:
        self.process = subprocess.Popen(
            sshd.ssh_argv(None, "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.echo("hello") == "hello"

    def say(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().decode().strip()

    def echo(self, word: str) -> str:
        self.say(word)
        return self.hear()

    def hears_nothing(self) -> bool:
        """Whether the host is silent for a moment; the end of the connection would be something to hear."""
        assert self.process.stdout
        return not select.select([self.process.stdout], [], [], 0.5)[0]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def client(sshd: Sshd) -> Iterator[Client]:
    client = Client(sshd)
    yield client
    client.end()


def ssh(sshd: Sshd, user: str | None, *command: str, options: tuple[str, ...] = (), stdin: str = "") -> str:
    """What a command prints on the host, or why the client fails."""
    argv = sshd.ssh_argv(user, *command, options=options)
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr.strip()}"


def test_whoever_runs_the_tests_can_log_in_and_the_log_says_so(sshd: Sshd) -> None:
    assert ssh(sshd, None, "echo hello") == "hello"
    assert f"Accepted publickey for {own_account().name}" in sshd.log()


def test_every_account_runs_commands_in_its_own_shell_and_home(sshd: Sshd, user: Account) -> None:
    shell = ssh(sshd, user.name, "sh -c 'readlink /proc/$PPID/exe'; true")
    assert shell == str(Path(user.shell).resolve())
    assert ssh(sshd, user.name, "id -u; pwd; ls -a .ssh").split() == [str(user.uid), str(user.home), ".", ".."]


def test_a_start_up_file_can_make_noise(sshd: Sshd, user: Account) -> None:
    user.write_startup("echo noise\n")
    if Path(user.shell).name in {"bash", "fish", "tcsh"}:
        assert ssh(sshd, user.name, "echo hello").split() == ["noise", "hello"]
    else:  # a plain POSIX shell reads its profile for logins without a command only
        assert ssh(sshd, user.name, stdin="echo hello\n").split()[-2:] == ["noise", "hello"]


def test_accounts_are_never_shared_and_never_dirty() -> None:
    with account("dash") as one, account("dash") as other:
        assert one.name != other.name
        (one.home / "left").touch()
        idle = subprocess.Popen(["sleep", "300"], user=one.uid, group=one.gid)
    assert idle.wait() == -9
    assert not one.home.exists()


def test_sessions_are_counted_and_killed_while_their_commands_go_on(sshd: Sshd, client: Client) -> None:
    other = Client(sshd)
    sleeper = subprocess.Popen(sshd.ssh_argv(None, "sh -c 'echo $$; exec sleep 300'"), stdout=subprocess.PIPE)
    assert sleeper.stdout
    command = psutil.Process(int(sleeper.stdout.readline()))
    try:
        assert len(sshd.sessions()) == sshd.connections() == 3
        sshd.kill_sessions()
        assert sshd.sessions() == []
        assert [each.wait() for each in (client.process, other.process, sleeper)] == [255, 255, 255]
        assert command.is_running()
        assert ssh(sshd, None, "echo hello") == "hello"
    finally:
        command.kill()
        other.end()
        sleeper.communicate()


def test_a_restart_ends_sessions_and_keeps_port_and_key(sshd: Sshd, client: Client) -> None:
    before = sshd.port, sshd.host_fingerprint, sshd.host_key_line()
    sshd.restart()
    assert client.process.wait() == 255
    assert (sshd.port, sshd.host_fingerprint, sshd.host_key_line()) == before
    assert ssh(sshd, None, "echo hello") == "hello"


def test_a_host_set_up_anew_is_not_the_host_that_was_known(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "known").write_text(sshd.host_key_line() + "\n")
    as_known = ("-o", f"UserKnownHostsFile={tmp_path / 'known'}")
    assert ssh(sshd, None, "echo hello", options=as_known) == "hello"
    sshd.restart(new_host_key=True)
    assert "IDENTIFICATION HAS CHANGED" in ssh(sshd, None, "echo hello", options=as_known)
    assert ssh(sshd, None, "echo hello") == "hello"


def test_a_frozen_server_is_silent_and_goes_on(sshd: Sshd, client: Client) -> None:
    sshd.freeze()
    client.say("still there?")
    assert client.hears_nothing()
    assert sshd.connections() == 1
    sshd.thaw()
    assert client.hear() == "still there?"


def test_a_stopped_server_refuses_and_a_frozen_one_can_be_stopped(sshd: Sshd) -> None:
    sshd.freeze()
    sshd.stop()
    assert "Connection refused" in ssh(sshd, None, "echo hello")
    sshd.start()
    assert ssh(sshd, None, "echo hello") == "hello"


def test_settings_come_in_as_lines() -> None:
    with Sshd("SetEnv HOME=/ COLOUR=blue", "PermitTTY no", "Match User nobody", "ForceCommand false") as sshd:
        assert ssh(sshd, None, "echo $COLOUR") == "blue"
        assert "PTY allocation request failed" in ssh(sshd, None, "false", options=("-tt",))


def test_whoever_runs_the_tests_has_an_empty_home(sshd: Sshd) -> None:
    assert ssh(sshd, None, "echo $HOME; ls -A ~") == str(sshd.home)


def test_wrong_settings_are_told() -> None:
    with pytest.raises(RuntimeError, match="Bad configuration option: NoSuchThing"), Sshd("NoSuchThing yes"):
        pass


def test_a_server_has_the_host_keys_that_are_asked_for() -> None:
    with Sshd(host_keys=("rsa", "ecdsa")) as sshd:
        assert " ssh-rsa " in sshd.host_key_line()
        for kind in ("rsa", "ecdsa"):
            algorithm = sshd.host_key_line(kind).split()[1].replace("ssh-rsa", "rsa-sha2-512")
            assert ssh(sshd, None, "echo hello", options=("-o", f"HostKeyAlgorithms={algorithm}")) == "hello"


def test_keys_that_the_authority_signed_are_let_in(sshd: Sshd, tmp_path: Path) -> None:
    stranger = keys.new_key(tmp_path / "key")
    keys.sign(sshd.user_ca, stranger, own_account().name)
    assert ssh(sshd, None, "echo hello", options=("-i", str(stranger))) == "hello"
    assert "ED25519-CERT" in sshd.log()


def test_tests_that_are_killed_leave_no_server(tmp_path: Path) -> None:
    source = "from tests.support.ssh.sshd import Sshd; s = Sshd(); s.start(); print(s.port, flush=True); input()"
    tests = subprocess.Popen(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert tests.stdout
    port = int(tests.stdout.readline())
    socket.create_connection(("127.0.0.1", port)).close()
    tests.kill()
    tests.communicate()
    until(lambda: not _listens(port), "the end of the server")


def test_a_cut_link_is_silent_and_goes_on_once_mended() -> None:
    need_links()
    with Link() as link, Sshd(link=link) as sshd:
        client = Client(sshd)
        try:
            link.cut()
            client.say("still there?")
            assert client.hears_nothing()
            assert "timed out" in ssh(sshd, None, "echo hello", options=("-o", "ConnectTimeout=1"))
            assert sshd.connections() == len(sshd.sessions()) == 1
            link.mend()
            assert client.hear() == "still there?"
        finally:
            client.end()


def test_a_link_leaves_nothing_behind() -> None:
    need_links()
    with Link() as one, Link() as other:
        assert one.address != other.address
        inside = one.popen(["sleep", "300"])
        assert one.near_address in _addresses()
    assert inside.wait() == -9
    assert one.near_address not in _addresses()


def test_hosts_behind_links_are_hosts_of_their_own(sshd: Sshd) -> None:
    need_links()
    with Link() as link, Sshd(link=link) as far:
        link.cut()
        assert ssh(sshd, None, "echo hello") == "hello"
        link.mend()
        until(lambda: ssh(far, None, "echo hello") == "hello", "a host that is back")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _addresses() -> str:
    return subprocess.check_output([need("ip"), "-4", "address"], text=True)

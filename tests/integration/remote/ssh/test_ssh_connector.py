"""How a host is found and logged in to: ssh_config, identities and jump hosts, as OpenSSH has them."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remote.errors import HostAuthFailed, HostError, HostKeyChanged, HostUnreachable
from remote.ssh.connector import Connector
from remote.ssh.host import SshHost
from remote.ssh.host_keys import HostKeys
from remote.ssh.login import prepare
from remote.ssh.target import Target
from tests.support.needs import need
from tests.support.ssh import keys
from tests.support.ssh.accounts import own_account
from tests.support.ssh.laboratory import eventually
from tests.support.ssh.ssh_laboratory import SshLab, loop_complaints, nap, opened, rest, run
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until

ME = own_account().name
quiet = pytest.fixture(autouse=True)(loop_complaints)


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def other() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


@pytest.fixture
def third() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


async def said(site: SshLab, target: Target, *others: Target, script: str = "echo $SSH_CONNECTION") -> str:
    """What a shell there prints."""
    async with site.pool(target, *others) as pool:
        return (await run(await pool.open_channel(), script)).decode()


async def port_of(site: SshLab, target: Target, *others: Target) -> int:
    """The port of the server that answers."""
    return int((await said(site, target, *others)).split()[3])


async def refusal(site: SshLab, target: Target, *others: Target, **options: Any) -> HostError:
    """The error with which a host is not reached."""
    async with site.pool(target, *others, **options) as pool:
        with pytest.raises(HostError) as refused:
            await pool.open_channel()
    assert refused.value.host == target.name
    return refused.value


def test_a_login_asks_nobody_and_a_dead_connection_is_found_out(tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.touch()
    options = prepare(Target("worker", "box"), config, 30.0).options
    assert (options.connect_timeout, options.keepalive_interval, options.keepalive_count_max) == (30.0, 15, 3)
    assert (options.password_auth, options.kbdint_auth) == (False, False)


# ---- ssh_config


async def test_an_alias_in_ssh_config_says_all_that_a_target_leaves_open(site: SshLab, sshd: Sshd) -> None:
    site.config.write_text(f"""
        Host other
          Port 1
        Host box b?x
          HostName {sshd.host}
          User {ME}
          Port {sshd.port}
          IdentityFile {sshd.client_key}
        Host *
          Port 2
          User nobody
    """)
    assert await port_of(site, Target("worker", "box")) == sshd.port


async def test_what_a_target_says_counts_more_than_ssh_config(site: SshLab, sshd: Sshd) -> None:
    stranger = keys.new_key(site.folder / "stranger")
    site.config.write_text(
        f"HostName {sshd.host}\nPort 1\nUser nobody\nIdentityFile {stranger}\nProxyJump nowhere\n"
    )
    assert await port_of(site, site.target(sshd, address="box", jump="none")) == sshd.port


async def test_includes_and_matches_are_followed(site: SshLab, sshd: Sshd) -> None:
    included = site.folder / "included"
    included.write_text(
        f'Match host box exec "test -d {site.folder}"\n  Port {sshd.port}\n  HostName {sshd.host}\n'
    )
    site.config.write_text(
        f"Include {included}\nMatch originalhost box user nobody\n  Port 1\nMatch all\n  User {ME}\n"
    )
    assert await port_of(site, Target("box", "box", identity=sshd.client_key)) == sshd.port


async def test_a_final_match_is_followed(site: SshLab, sshd: Sshd) -> None:
    site.config.write_text(
        f"HostName {sshd.host}\nMatch final host {sshd.host}\n  Port {sshd.port}\n  User {ME}\n"
    )
    assert await port_of(site, Target("box", "box", identity=sshd.client_key)) == sshd.port


async def test_a_host_is_known_by_its_alias_for_host_keys(site: SshLab, sshd: Sshd, other: Sshd) -> None:
    site.config.write_text("HostKeyAlias cluster\n")
    assert await port_of(site, site.target(sshd)) == sshd.port
    found = subprocess.run(
        [need("ssh-keygen"), "-F", "cluster", "-f", site.known_hosts], capture_output=True, check=False
    )
    assert found.returncode == 0
    assert "host key has changed" in (await refusal(site, site.target(other))).message


async def test_what_is_meant_for_a_terminal_does_not_disturb(
    site: SshLab, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_SECRET", "secret")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nonexistent/agent")
    site.config.write_text("""
        RemoteCommand tmux attach
        RequestTTY force
        SendEnv LC_* LANG
        SetEnv LC_ALSO=secret
        ForwardAgent yes
        ForwardX11 yes
        ForwardX11Trusted yes
        LocalForward 1 localhost:1
        PKCS11Provider /nonexistent.so
        EnableSSHKeysign yes
        Compression yes
        CanonicalizeHostname yes
        CanonicalDomains nowhere.invalid
        ServerAliveInterval 1
        ControlMaster auto
        ControlPath /nonexistent/%C
        BatchMode no
        NoSuchKeyword at all
    """)
    sshd_that_accepts = Sshd("AcceptEnv LC_*", "X11Forwarding yes")
    with sshd_that_accepts as accepting:
        environment = await said(site, site.target(accepting), script="env; test -t 0 && echo terminal; echo end")
    assert environment.endswith("end\n")
    for word in ("secret", "terminal", "SSH_AUTH_SOCK", "DISPLAY", "SSH_TTY"):
        assert word not in environment


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Port ssh", "line 1: Invalid Port integer value: ssh"),
        ("\n\nHostName 'box", "line 3: No closing quotation"),
        ("IdentityFile ~/%k", "Invalid token expansion: k"),
        ("Include {config}", "its files include each other"),
        ("# \udce4", "it is not UTF-8"),
        ('Match exec "sleep 3"\nPort 1', "could not be read within the connect timeout"),
        ("RekeyLimit 0", "Rekey bytes cannot be negative or zero"),
    ],
)
async def test_an_ssh_config_that_cannot_be_used_is_named(
    site: SshLab, sshd: Sshd, text: str, complaint: str
) -> None:
    site.config.write_text(text.format(config=site.config), errors="surrogateescape")
    error = await refusal(site, site.target(sshd), timeout_s=0.5 if "exec" in text else 60.0)
    assert isinstance(error, HostAuthFailed)
    assert complaint in error.message
    assert str(site.config) in error.message
    assert sshd.log().count("Connection from") == 0


class Gate:
    """A `Match exec` that hangs until the gate is opened, and leaves a line whenever it is begun."""

    def __init__(self, site: SshLab) -> None:
        self._open = site.folder / "open"
        self._begun = site.folder / "begun"
        self._begun.touch()
        site.config.write_text(
            f'Match exec "echo begun >>{self._begun}; until [ -e {self._open} ]; do sleep 0.05; done"\n'
        )

    @property
    def begun(self) -> int:
        return len(self._begun.read_text().splitlines())

    def open(self) -> None:
        self._open.touch()


@pytest.fixture
def gate(site: SshLab) -> Iterator[Gate]:
    gate = Gate(site)
    yield gate
    gate.open()


async def test_a_preparation_that_hangs_costs_one_thread_however_often_its_host_is_tried(
    site: SshLab, sshd: Sshd, gate: Gate
) -> None:
    target = site.target(sshd)
    connector = site.connector(target, timeout_s=10.0)
    others = set(threading.enumerate())
    with pytest.raises(HostAuthFailed, match="could not be read within the connect timeout"):
        await connector.connect(target)
    for _ in range(3):
        again = asyncio.create_task(connector.connect(target))
        await nap()
        assert again.done()  # at once
        with pytest.raises(HostAuthFailed, match="could not be read within the connect timeout"):
            await again
    (hanging,) = set(threading.enumerate()) - others
    assert (hanging.daemon, gate.begun) == (True, 1)
    gate.open()
    await eventually(lambda: not hanging.is_alive())
    connection = await connector.connect(target)
    connection.close()
    await connection.wait_closed()
    assert gate.begun == 2


async def test_a_preparation_that_hangs_does_not_keep_the_loop_from_its_end(
    site: SshLab, sshd: Sshd, gate: Gate
) -> None:
    async def connect() -> None:
        target = site.target(sshd)
        await site.connector(target, timeout_s=0.2).connect(target)

    def hang_and_leave() -> None:
        with pytest.raises(HostAuthFailed):
            asyncio.run(connect())

    await asyncio.to_thread(hang_and_leave)
    await eventually(lambda: gate.begun == 1)


async def test_connects_at_once_share_a_preparation(site: SshLab, sshd: Sshd, gate: Gate) -> None:
    target = site.target(sshd)
    connector = site.connector(target)
    connecting = [asyncio.create_task(connector.connect(target)) for _ in range(4)]
    await eventually(lambda: gate.begun == 1)
    gate.open()
    connections = await asyncio.gather(*connecting)
    await eventually(lambda: sshd.connections() == 4)
    assert gate.begun == 1
    for connection in connections:
        connection.close()
        await connection.wait_closed()


async def test_a_missing_ssh_config_is_named(site: SshLab, sshd: Sshd) -> None:
    site.config.unlink()
    error = await refusal(site, site.target(sshd))
    assert isinstance(error, HostAuthFailed)
    assert f"No such file or directory ({site.config}). Make it readable" in error.message


async def test_a_proxy_command_runs_in_a_shell_and_its_complaints_are_no_words_of_the_host(
    site: SshLab, sshd: Sshd, other: Sshd
) -> None:
    relay = shlex.join(other.ssh_argv(None, options=("-W", "[%h]:%p"))).replace("'", "")
    complaints = site.folder / "complaints"
    complaints.write_text("until [ -e $0.end ]; do echo complaint; sleep 0.05; done\n")
    site.config.write_text(f"ProxyCommand sh -c 'sh {complaints} >&2 & exec {relay}' | cat\n")
    async with site.pool(site.target(sshd)) as pool:
        assert await run(await pool.open_channel(), "sleep 0.5; echo hello") == b"hello\n"
        await eventually(lambda: other.connections() == 1)
    Path(f"{complaints}.end").touch()
    await eventually(lambda: other.connections() == sshd.connections() == 0)


# ---- identities


def encrypted(path: Path) -> Path:
    subprocess.run([need("ssh-keygen"), "-q", "-t", "ed25519", "-N", "secret", "-f", path], check=True)
    return path


def no_key(path: Path) -> Path:
    path.write_text("no key\n")
    return path


@pytest.mark.parametrize("more", ["", "IdentitiesOnly yes\n"])
@pytest.mark.parametrize("make", [encrypted, no_key])
async def test_an_identity_that_cannot_be_used_is_named(site: SshLab, sshd: Sshd, more: str, make: Any) -> None:
    site.config.write_text(more)
    path = make(site.folder / "identity")
    error = await refusal(site, site.target(sshd, identity=path))
    assert isinstance(error, HostAuthFailed)
    assert f"the identity cannot be used: {path}: " in error.message
    assert "Set a private key without a passphrase, or keep the key in an ssh-agent" in error.message


async def test_an_identity_that_is_missing_is_named(site: SshLab, sshd: Sshd) -> None:
    missing = site.folder / "missing"
    error = await refusal(site, site.target(sshd, identity=missing))
    assert isinstance(error, HostAuthFailed)
    assert f"No such file or directory ({missing}). Make it readable, or set another" in error.message


@pytest.mark.parametrize("make", [no_key, lambda path: path])
async def test_an_identity_of_ssh_config_that_cannot_be_used_is_named(site: SshLab, sshd: Sshd, make: Any) -> None:
    path = make(site.folder / "identity")
    site.config.write_text(f"IdentityFile {path}\n")
    error = await refusal(site, site.target(sshd, identity=None))
    assert isinstance(error, HostAuthFailed)
    assert str(path) in error.message


async def test_only_the_identity_is_offered_when_there_is_one(site: SshLab, sshd: Sshd) -> None:
    stranger = keys.new_key(site.folder / "stranger")
    site.config.write_text(f"IdentityFile {sshd.client_key}\n")
    error = await refusal(site, site.target(sshd, identity=stranger))
    assert isinstance(error, HostAuthFailed)
    assert f"{sshd.host}:{sshd.port} refuses the login: Permission denied for user {ME}" in error.message
    assert "Check user and identity here" in error.message
    assert sshd.log().count("Failed publickey") == 1


async def test_the_certificate_beside_an_identity_and_that_of_ssh_config_are_shown(
    site: SshLab, sshd: Sshd
) -> None:
    identity = keys.new_key(site.folder / "identity")
    certificate = keys.sign(sshd.user_ca, identity, ME)
    assert await port_of(site, site.target(sshd, identity=identity)) == sshd.port
    certificate.rename(site.folder / "elsewhere")
    assert isinstance(await refusal(site, site.target(sshd, identity=identity)), HostAuthFailed)
    site.config.write_text(f"CertificateFile {site.folder / 'elsewhere'}\n")
    assert await port_of(site, site.target(sshd, identity=identity)) == sshd.port


@pytest.mark.parametrize("method", ["PasswordAuthentication", "KbdInteractiveAuthentication"])
async def test_a_server_that_wants_a_password_refuses_and_nobody_is_asked(site: SshLab, method: str) -> None:
    with Sshd(f"{method} yes", "PubkeyAuthentication no") as sshd:
        error = await refusal(site, site.target(sshd))
    assert isinstance(error, HostAuthFailed)
    assert "passwords never" in error.message


async def test_too_many_keys_are_a_refused_login(site: SshLab) -> None:
    strangers = [keys.new_key(site.folder / f"stranger{number}") for number in range(3)]
    site.config.write_text("".join(f"IdentityFile {path}\n" for path in strangers))
    with Sshd("MaxAuthTries 2") as sshd:
        error = await refusal(site, site.target(sshd, identity=None))
    assert isinstance(error, HostAuthFailed)
    assert "rejected the first keys offered; set the right one as identity" in error.message


@pytest.fixture
def agent(site: SshLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent that holds the key of the returned file, which has a passphrase."""
    address, add = site.folder / "agent", need("ssh-add")
    process = subprocess.Popen([need("ssh-agent"), "-D", "-a", address], stdout=subprocess.DEVNULL)
    until(address.exists, "an agent")
    askpass = site.folder / "askpass"
    askpass.write_text("#!/bin/sh\necho secret\n")
    askpass.chmod(0o700)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(address))
    asking = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
    try:
        key = encrypted(site.folder / "held")
        subprocess.run([add, "-q", key], env=asking, check=True, capture_output=True)
        yield key
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("config", ["", "IdentityFile {key}\n", "IdentityFile {key}\nIdentitiesOnly yes\n"])
async def test_a_key_with_a_passphrase_counts_while_an_agent_holds_it(
    site: SshLab, sshd: Sshd, agent: Path, config: str
) -> None:
    sshd.authorized_keys.write_text(keys.public(agent))
    site.config.write_text(config.format(key=agent))
    assert isinstance(await refusal(site, site.target(sshd)), HostAuthFailed)  # which names another identity
    target = site.target(sshd, identity=None)
    assert await port_of(site, target) == sshd.port
    subprocess.run([need("ssh-add"), "-q", "-D"], check=True, capture_output=True)
    assert isinstance(await refusal(site, target), HostAuthFailed)


# ---- jump hosts


def named(site: SshLab, name: str, sshd: Sshd, **changes: Any) -> Target:
    return site.target(sshd, name=name, **changes)


async def test_a_host_is_reached_through_another_target_with_its_own_login(
    site: SshLab, sshd: Sshd, other: Sshd
) -> None:
    assert other.client_key.read_bytes() != sshd.client_key.read_bytes()
    words = (await said(site, site.target(sshd, jump="bastion"), named(site, "bastion", other))).split()
    assert int(words[3]) == sshd.port
    assert f"Accepted publickey for {ME}" in other.log()


async def test_a_host_is_reached_through_two_others(site: SshLab, sshd: Sshd, other: Sshd, third: Sshd) -> None:
    first, second = named(site, "first", other), named(site, "second", third)
    for target, *others in (
        (site.target(sshd, jump="first,second"), first, second),
        (site.target(sshd, jump="second"), first, replace(second, jump="first")),
    ):
        assert await port_of(site, target, *others) == sshd.port
    assert other.log().count("Accepted publickey") == third.log().count("Accepted publickey")
    assert f"Connection from {other.host}" in third.log()


async def test_a_jump_may_be_given_as_user_address_and_port(site: SshLab, sshd: Sshd, other: Sshd) -> None:
    site.config.write_text(f"IdentityFile {other.client_key}\n")
    for jump in (f"{ME}@{other.host}:{other.port}", f"ssh://{ME}@{other.host}:{other.port}"):
        assert await port_of(site, site.target(sshd, jump=jump)) == sshd.port


async def test_the_jump_of_ssh_config_is_taken_be_it_an_alias_or_a_target(
    site: SshLab, sshd: Sshd, other: Sshd
) -> None:
    box = f"Host box\n HostName {sshd.host}\n ProxyJump bastion\n"
    bastion = f"Host bastion\n HostName {other.host}\n Port {other.port}\n IdentityFile {other.client_key}\n"
    target = site.target(sshd, address="box")
    site.config.write_text(box + bastion)
    assert await port_of(site, target) == sshd.port
    assert other.log().count("Connection from") == 1
    site.config.write_text(box)
    assert await port_of(site, target, named(site, "bastion", other)) == sshd.port
    assert other.log().count("Connection from") == 2


async def test_the_users_own_ssh_config_counts_where_no_other_is_named(
    site: SshLab, sshd: Sshd, other: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = f"Host box\n HostName {sshd.host}\n Port {sshd.port}\n ProxyJump bastion\n"
    bastion = f"Host bastion\n HostName {other.host}\n Port {other.port}\n"
    keys_of_both = f"Host *\n User {ME}\n IdentityFile {sshd.client_key}\n IdentityFile {other.client_key}\n"
    (site.folder / ".ssh").mkdir()
    (site.folder / ".ssh" / "config").write_text(box + bastion + keys_of_both)
    monkeypatch.setenv("HOME", str(site.folder))
    target = Target("box", "box")
    async with opened(SshHost(target, Connector([target], HostKeys(site.known_hosts)))) as pool:
        output = await run(await pool.open_channel(), "echo $SSH_CONNECTION")
    assert int(output.split()[3]) == sshd.port
    assert other.log().count("Connection from") == 1


async def test_many_connections_share_one_to_the_jump_host_which_ends_with_the_last(
    site: SshLab, sshd: Sshd, other: Sshd
) -> None:
    bastion = named(site, "bastion", other)
    one, two = (site.target(sshd, name=name, jump="bastion") for name in ("one", "two"))
    connector = site.connector(one, two, bastion)
    pools = [SshHost(one, connector), SshHost(two, connector)]
    channels = await asyncio.gather(*(pool.open_channel() for pool in pools for _ in range(20)))
    await eventually(lambda: sshd.connections() == 6)
    await eventually(lambda: other.connections() == 1)
    await pools[0].close()
    assert await run(channels[-1], "echo still here") == b"still here\n"
    await eventually(lambda: other.connections() == 1)
    await pools[1].close()
    await eventually(lambda: other.connections() == sshd.connections() == 0)


async def test_a_jump_host_is_left_even_if_the_end_of_a_connection_through_it_fails(
    site: SshLab, sshd: Sshd, other: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the socket of an ssh-agent is lost."""
    target, bastion = site.target(sshd, jump="bastion"), named(site, "bastion", other)
    connection = await site.connector(target, bastion).connect(target)
    wait_closed = connection.wait_closed

    async def fail() -> None:
        await wait_closed()
        raise BrokenPipeError

    monkeypatch.setattr(connection, "wait_closed", fail)
    await eventually(lambda: other.connections() == 1)
    connection.close()
    await eventually(lambda: other.connections() == sshd.connections() == 0)


async def test_a_jump_host_that_dies_ends_the_channels_and_is_gone_through_again(
    site: SshLab, sshd: Sshd, other: Sshd
) -> None:
    async with site.pool(site.target(sshd, jump="bastion"), named(site, "bastion", other)) as pool:
        channels = await asyncio.gather(*(pool.open_channel() for _ in range(10)))
        other.kill_sessions()
        assert await asyncio.gather(*map(rest, channels)) == [b""] * 10
        await eventually(lambda: (pool.connections, pool.channels) == (0, 0))
        assert await run(await pool.open_channel(), "echo again") == b"again\n"
        await eventually(lambda: other.connections() == 1)


async def test_a_jump_host_that_is_left_in_the_middle_of_its_handshake_is_connected_to_anew(
    site: SshLab, sshd: Sshd, other: Sshd
) -> None:
    bastion = named(site, "bastion", other)
    target = site.target(sshd, jump="bastion")
    connector = site.connector(target, bastion)
    other.freeze()
    connecting = asyncio.create_task(connector.connect(target))
    await eventually(lambda: other.connections() == 1)
    connecting.cancel()
    again = asyncio.create_task(connector.connect(target))
    await asyncio.gather(connecting, return_exceptions=True)
    assert connecting.cancelled()
    other.thaw()
    connection = await again
    connection.close()
    await connection.wait_closed()
    await eventually(lambda: other.connections() == sshd.connections() == 0)


async def test_errors_say_on_which_leg_of_the_way_they_happened(site: SshLab, sshd: Sshd, other: Sshd) -> None:
    stranger = keys.new_key(site.folder / "stranger")
    bastion, target = named(site, "bastion", other), site.target(sshd, jump="bastion")

    error = await refusal(site, target, replace(bastion, identity=stranger))
    assert isinstance(error, HostAuthFailed)
    assert f"no route through bastion: {other.host}:{other.port} refuses the login" in error.message

    error = await refusal(site, target, replace(bastion, identity=site.folder / "missing"))
    assert isinstance(error, HostAuthFailed)
    assert "no route through bastion: a file for the login cannot be read" in error.message

    error = await refusal(site, replace(target, identity=stranger), bastion)
    assert isinstance(error, HostAuthFailed)
    assert f"through bastion: {sshd.host}:{sshd.port} refuses the login" in error.message
    assert "no route" not in error.message

    error = await refusal(site, replace(target, port=1), bastion)
    assert isinstance(error, HostUnreachable)
    assert f"through bastion: the jump host cannot reach {sshd.host}:1: Connection refused" in error.message

    other.restart(new_host_key=True)
    error = await refusal(site, target, bastion)
    assert isinstance(error, HostKeyChanged)
    assert "no route through bastion: its host key has changed" in error.message

    other.stop()
    error = await refusal(site, target, bastion)
    assert isinstance(error, HostUnreachable)
    unreachable = f"no route through bastion: {other.host}:{other.port} cannot be reached: Connection refused"
    assert unreachable in error.message


async def test_a_jump_host_that_forwards_nothing_says_so(site: SshLab, sshd: Sshd) -> None:
    with Sshd("AllowTcpForwarding no") as other:
        error = await refusal(site, site.target(sshd, jump="bastion"), named(site, "bastion", other))
    assert "through bastion: the jump host cannot reach" in error.message
    assert "it does not allow forwarding; see AllowTcpForwarding" in error.message


async def test_jumps_in_a_circle_are_refused_even_when_both_ends_set_out_at_once(site: SshLab, sshd: Sshd) -> None:
    one, two = (site.target(sshd, name=name, jump=jump) for name, jump in (("one", "two"), ("two", "one")))
    connector = site.connector(one, two)
    connecting = [connector.connect(target) for target in (one, two)] * 1
    outcomes = await asyncio.gather(*connecting, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, HostAuthFailed)
        assert "its jump hosts lead back to" in outcome.message
    assert isinstance(await refusal(site, site.target(sshd, jump="box")), HostAuthFailed)
    assert sshd.log().count("Connection from") == 0


async def test_a_jump_that_is_no_host_is_refused(site: SshLab, sshd: Sshd) -> None:
    error = await refusal(site, site.target(sshd, jump="a b"))
    assert isinstance(error, HostAuthFailed)
    assert "a host to connect to is [user@]address[:port], not 'a b'" in error.message

"""Which host keys are trusted, with real servers, real certificates, and OpenSSH's own opinion of the files."""

from __future__ import annotations

import getpass
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from remote.errors import HostAuthFailed, HostError, HostKeyChanged
from remote.ssh import known_hosts_writer
from remote.ssh.host_keys import HostKeyCheck, HostKeyPolicy, HostKeys
from remote.ssh.known_hosts import KnownHostsFile, describe, line_for, look_up
from tests.support.needs import need
from tests.support.ssh.sshd import Sshd

CHECKED = (HostKeyPolicy.ACCEPT_NEW, HostKeyPolicy.STRICT)


@pytest.fixture(autouse=True, scope="module")
def openssh() -> None:
    for tool in ("sshd", "ssh", "ssh-keygen"):
        need(tool)


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "state" / "known_hosts"


@pytest.fixture
def others(tmp_path: Path) -> Path:
    return tmp_path / "others"


async def connect(sshd: Sshd, keys: HostKeys, check: HostKeyCheck | None = None) -> asyncssh.SSHKey:
    """Log in as the connection pool does; return the host's key."""
    check = check or keys.handshake("box", sshd.host, sshd.port)
    login = {"username": getpass.getuser(), "client_keys": [str(sshd.client_key)], "agent_path": None}
    try:
        connection = await asyncssh.connect(sshd.host, sshd.port, config=None, **login, **check.options())
    except asyncssh.HostKeyNotVerifiable:
        assert check.refusal is not None
        raise check.refusal from None
    async with connection:
        key = connection.get_server_host_key()
        await check.verified(key)
        assert key is not None
        return key


async def refusal(sshd: Sshd, keys: HostKeys) -> str:
    with pytest.raises(HostKeyChanged) as refused:
        await connect(sshd, keys)
    assert refused.value.host == "box"
    return refused.value.message


def ssh(sshd: Sshd, known_hosts: Path, *options: str) -> bool:
    """Whether OpenSSH logs in with this file of known hosts."""
    given = [word for option in (f"UserKnownHostsFile={known_hosts}", *options) for word in ("-o", option)]
    return subprocess.run(sshd.ssh_argv(None, "true", options=given), check=False).returncode == 0


def keygen(*args: str) -> str:
    return subprocess.run(["ssh-keygen", *args], capture_output=True, text=True, check=True).stdout


def knows(file: Path, name: str) -> bool:
    """Whether OpenSSH finds this name in the file."""
    return subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True, check=False).returncode == 0


def new_key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519").convert_to_public()


# ---- new and known hosts


async def test_a_new_host_is_trusted_and_kept_so_that_openssh_knows_it_too(sshd: Sshd, own: Path) -> None:
    key = await connect(sshd, HostKeys(own))
    assert key.get_fingerprint() == sshd.host_fingerprint
    assert knows(own, f"[{sshd.host}]:{sshd.port}")
    assert ssh(sshd, own)
    assert own.read_text().startswith("|1|")
    assert own.stat().st_mode & 0o777 == 0o600
    assert own.parent.stat().st_mode & 0o777 == 0o700
    assert {file.name for file in own.parent.iterdir()} == {"known_hosts", "known_hosts.lock"}


async def test_a_host_is_kept_once(sshd: Sshd, own: Path) -> None:
    keys = HostKeys(own)
    await connect(sshd, keys)
    before = own.read_bytes()
    await connect(sshd, keys)
    await connect(sshd, HostKeys(own, policy=HostKeyPolicy.STRICT))
    assert own.read_bytes() == before


async def test_what_a_file_of_others_knows_is_not_kept_again(sshd: Sshd, own: Path) -> None:
    await connect(sshd, HostKeys(own, [sshd.known_hosts], HostKeyPolicy.STRICT))
    await connect(sshd, HostKeys(own, [sshd.known_hosts]))
    assert not own.parent.exists()


async def test_a_host_with_several_keys_is_asked_for_the_one_that_is_known(own: Path, others: Path) -> None:
    with Sshd(host_keys=("ed25519", "ecdsa", "rsa")) as sshd:
        for kind in ("rsa", "ecdsa", "ed25519"):
            others.write_text(sshd.host_key_line(kind) + "\n")
            key = await connect(sshd, HostKeys(own, [others]))
            assert line_for(f"[{sshd.host}]:{sshd.port}", key) == sshd.host_key_line(kind)
    assert not own.exists()


async def test_a_strict_worker_refuses_a_new_host_and_says_how_to_add_it(sshd: Sshd, own: Path) -> None:
    keys = HostKeys(own, policy=HostKeyPolicy.STRICT)
    message = await refusal(sshd, keys)
    assert "key is unknown" in message
    assert f"ssh-ed25519 {sshd.host_fingerprint}" in message
    text, _, line = message.partition(f"add this line to {own}: ")
    assert text != message
    own.parent.mkdir()
    own.write_text(line)  # without a newline, as an editor may leave it
    await connect(sshd, keys)
    assert ssh(sshd, own)


async def test_the_key_of_the_default_port_does_not_count_for_another_port(
    sshd: Sshd, own: Path, others: Path
) -> None:
    others.write_text(sshd.host_key_line().replace(f"[{sshd.host}]:{sshd.port}", sshd.host) + "\n")
    assert "key is unknown" in await refusal(sshd, HostKeys(own, [others], HostKeyPolicy.STRICT))


async def test_an_alias_is_known_without_a_port_as_openssh_has_it(sshd: Sshd, own: Path) -> None:
    keys = HostKeys(own)
    await connect(sshd, keys, keys.handshake("box", "alias", 22))
    assert knows(own, "alias")
    assert ssh(sshd, own, "HostKeyAlias=alias")


async def test_the_policy_off_trusts_all_and_warns_once_for_each_host(
    sshd: Sshd, own: Path, others: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others.write_text(line_for(f"[{sshd.host}]:{sshd.port}", new_key()) + "\n")
    keys = HostKeys(own, [others], HostKeyPolicy.OFF)
    with caplog.at_level(logging.WARNING, "remote"):
        await connect(sshd, keys)
        await connect(sshd, keys)
        keys.handshake("other", sshd.host, sshd.port)
    warnings = [
        record for record in caplog.records if record.name.startswith("remote.")
    ]  # not other tests' threads
    assert [record.getMessage().split(";")[0] for record in warnings] == [
        "host box: its host key is NOT CHECKED (policy off)",
        "host other: its host key is NOT CHECKED (policy off)",
    ]
    assert not own.exists()


# ---- changed and revoked keys


@pytest.mark.parametrize("policy", CHECKED)
async def test_a_changed_key_is_refused_until_the_known_one_is_removed(
    sshd: Sshd, own: Path, policy: HostKeyPolicy
) -> None:
    own.parent.mkdir()
    own.write_text("# a comment\n\n" + sshd.known_hosts.read_text())
    keys = HostKeys(own, policy=policy)
    await connect(sshd, keys)
    known = sshd.host_fingerprint
    sshd.restart(new_host_key=True)
    message = await refusal(sshd, keys)
    assert f"offers ssh-ed25519 {sshd.host_fingerprint}; recorded: ssh-ed25519 {known} ({own} line 3)" in message
    subprocess.run(message.rpartition(": ")[2], shell=True, check=True, capture_output=True)
    if policy is HostKeyPolicy.STRICT:
        assert "key is unknown" in await refusal(sshd, keys)
    else:
        await connect(sshd, keys)
        assert ssh(sshd, own)


async def test_a_known_host_that_has_only_a_key_of_another_type_has_changed(own: Path, others: Path) -> None:
    with Sshd(host_keys=("ecdsa",)) as sshd:
        known = new_key()
        others.write_text(line_for(f"[{sshd.host}]:{sshd.port}", known) + "\n")
        message = await refusal(sshd, HostKeys(own, [others]))
        assert f"offers ecdsa-sha2-nistp256 {sshd.host_fingerprint}; recorded: {describe(known)}" in message
        assert not ssh(sshd, others, "StrictHostKeyChecking=accept-new")
    assert not own.exists()


@pytest.mark.parametrize("policy", CHECKED)
async def test_a_revoked_key_is_refused_even_when_it_is_known(
    sshd: Sshd, own: Path, others: Path, policy: HostKeyPolicy
) -> None:
    line = sshd.host_key_line()
    others.write_text(f"{line}\n@revoked * {line.partition(' ')[2]}\n")
    message = await refusal(sshd, HostKeys(own, [others], policy))
    assert "revoked" in message
    assert f"{sshd.host_fingerprint} ({others} line 2)" in message
    assert not ssh(sshd, others)
    assert not own.exists()


async def test_a_connection_that_agrees_on_keys_anew_stays_with_the_same_host(own: Path) -> None:
    check = HostKeys(own).handshake("box", "box", 22)
    first, second = new_key(), new_key()
    client = check.options()["client_factory"]()
    assert client.validate_host_public_key("box", "", 22, first)
    assert not client.validate_host_public_key("box", "", 22, second)
    assert client.validate_host_public_key("box", "", 22, first)
    await check.verified(second)
    assert not own.exists()


# ---- host certificates


class Certified:
    """A server whose host key an authority has signed."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "certificate"
        self.authority = folder / "authority"
        self.known_hosts = folder / "authorities"
        self.sshd = Sshd(f"HostCertificate {self.certificate}")
        keygen("-q", "-t", "ed25519", "-N", "", "-f", str(self.authority))
        self.known_hosts.write_text(f"@cert-authority [127.0.0.1]:* {self.public_authority}\n")

    @property
    def public_authority(self) -> str:
        return Path(f"{self.authority}.pub").read_text().strip()

    def sign(self, principal: str = "127.0.0.1", *options: str) -> None:
        key = self.sshd.folder / "host_key_ed25519.pub"
        keygen("-q", "-s", str(self.authority), "-h", "-I", "test", "-n", principal, *options, str(key))
        (self.sshd.folder / "host_key_ed25519-cert.pub").replace(self.certificate)


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[Certified]:
    host = Certified(tmp_path)
    try:
        yield host
    finally:
        host.sshd.close()


@pytest.mark.parametrize("policy", CHECKED)
async def test_a_certificate_of_a_known_authority_is_trusted_and_not_kept(
    certified: Certified, own: Path, policy: HostKeyPolicy
) -> None:
    certified.sign()
    certified.sshd.start()
    await connect(certified.sshd, HostKeys(own, [certified.known_hosts], policy))
    assert ssh(certified.sshd, certified.known_hosts)
    assert not own.exists()


async def test_a_certificate_of_another_authority_is_refused(certified: Certified, own: Path) -> None:
    certified.sign()
    certified.sshd.start()
    stranger = new_key()
    certified.known_hosts.write_text(line_for("@cert-authority *", stranger) + "\n")
    message = await refusal(certified.sshd, HostKeys(own, [certified.known_hosts]))
    signer = asyncssh.import_public_key(certified.public_authority)
    assert f"signed by {describe(signer)}; trusted: {describe(stranger)}" in message
    assert f"add this line to {own}: @cert-authority [127.0.0.1]:{certified.sshd.port} ssh-ed25519" in message
    assert not own.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("127.0.0.1", "-V", "20200101:20200102"), "Certificate expired"),
        (("127.0.0.1", "-V", "20990101:20990102"), "Certificate not yet valid"),
        (("elsewhere",), "Certificate principal mismatch"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_refused(
    certified: Certified, own: Path, options: tuple[str, ...], reason: str
) -> None:
    certified.sign(*options)
    certified.sshd.start()
    message = await refusal(certified.sshd, HostKeys(own, [certified.known_hosts]))
    assert reason in message
    assert not ssh(certified.sshd, certified.known_hosts)
    assert not own.exists()


@pytest.mark.parametrize("what", ["authority", "host key"])
async def test_a_certificate_is_refused_when_its_authority_or_its_key_is_revoked(
    certified: Certified, own: Path, what: str
) -> None:
    certified.sign()
    certified.sshd.start()
    key = certified.public_authority if what == "authority" else certified.sshd.host_key_line().partition(" ")[2]
    with certified.known_hosts.open("a") as file:
        file.write(f"@revoked * {key}\n")
    message = await refusal(certified.sshd, HostKeys(own, [certified.known_hosts]))
    assert "revoked" in message
    assert f"({certified.known_hosts} line 2)" in message


async def test_a_host_known_by_its_authority_cannot_come_with_a_plain_key(
    sshd: Sshd, certified: Certified, own: Path
) -> None:
    message = await refusal(sshd, HostKeys(own, [certified.known_hosts]))
    assert "has no host certificate" in message
    assert sshd.host_fingerprint in message
    assert not own.exists()


# ---- keeping keys


async def test_a_key_that_the_host_cannot_prove_to_own_is_not_kept(own: Path) -> None:
    thief = asyncssh.load_keypairs([asyncssh.generate_private_key("ssh-ed25519")])[0]
    thief.public_data = new_key().public_data  # shows another's key, and signs with its own
    server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[thief])
    check = HostKeys(own).handshake("box", "127.0.0.1", server.get_port())
    async with server:
        with pytest.raises(asyncssh.KeyExchangeFailed):
            await asyncssh.connect("127.0.0.1", server.get_port(), config=None, **check.options())
    assert check.refusal is None
    assert not own.exists()


_KEEPER = """
import asyncio, sys
from pathlib import Path
import asyncssh
from remote.ssh.host_keys import HostKeys

async def keep(own, hosts, key):
    keys = HostKeys(Path(own))
    for host in hosts:
        check = keys.handshake(host, host, 22)
        assert check.trusts(key)
        await check.verified(key)

own, worker, key = sys.argv[1:]
hosts = ["shared", *(f"{worker}-{number}" for number in range(5))]
key = asyncssh.import_public_key(key)
print(flush=True)
sys.stdin.readline()
asyncio.run(keep(own, hosts, key))
"""


def test_eight_processes_at_once_lose_no_key_and_keep_none_twice(own: Path) -> None:
    key = new_key().export_public_key().decode()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _KEEPER, str(own), f"worker{number}", key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(8)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 8
    assert len(own.read_text().splitlines()) == 8 * 5 + 1
    assert knows(own, "shared")
    assert all(knows(own, f"worker{worker}-{number}") for worker in range(8) for number in range(5))
    assert {file.name for file in own.parent.iterdir()} == {"known_hosts", "known_hosts.lock"}


async def test_of_two_new_keys_for_one_host_the_first_counts(own: Path) -> None:
    keys = HostKeys(own)
    checks = [keys.handshake("box", "box", 22) for _ in range(3)]
    first, second = new_key(), new_key()
    assert all(check.trusts(key) for check, key in zip(checks, (first, second, first), strict=True))
    await checks[0].verified(first)
    with pytest.raises(HostKeyChanged, match=r"changed\. It offers") as refused:
        await checks[1].verified(second)
    assert f"recorded: {describe(first)} ({own} line 1)" in refused.value.message
    await checks[2].verified(first)
    assert len(own.read_text().splitlines()) == 1


async def test_a_key_that_cannot_be_kept_is_an_error_that_names_the_file(sshd: Sshd, own: Path) -> None:
    own.with_name("known_hosts.lock").mkdir(parents=True)
    with pytest.raises(HostAuthFailed) as failure:
        await connect(sshd, HostKeys(own))
    assert f"host box: its host key cannot be recorded in {own}" in str(failure.value)


async def test_a_frozen_writer_does_not_hold_up_the_others_for_ever(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_hosts_writer, "_PATIENCE_S", 0.0)
    check, key = HostKeys(own).handshake("box", "box", 22), new_key()
    assert check.trusts(key)
    with known_hosts_writer.locked(own), pytest.raises(HostError, match="another process has held its lock"):
        await check.verified(key)
    await check.verified(key)
    assert knows(own, "box")


def test_a_file_that_cannot_be_read_is_no_reason_to_trust(own: Path, others: Path) -> None:
    others.mkdir()
    with pytest.raises(HostError, match=r"cannot be checked.*others.*make that file readable"):
        HostKeys(own, [others]).handshake("box", "box", 22)


# ---- reading files


async def test_broken_lines_are_passed_over_and_preserved(sshd: Sshd, own: Path) -> None:
    name = f"[{sshd.host}]:{sshd.port}"
    data = sshd.host_key_line().split()[2]
    broken = [
        b"\xff\xfe\x00 ssh-ed25519 \x85",
        b"@unknown-marker * " + b" ".join(sshd.host_key_line().encode().split()[1:]),
        f"{name} ssh-ed25519".encode(),
        f"{name} ssh-ed25519 AAAA".encode(),
        f"{name} ssh-ed25519 {data[:-8]}".encode(),
        f"{name} ssh-rsa {data}".encode(),
        f"{name} ssh-ed25519 \xe9".encode(),
        b"|1|no-base64|\xff ssh-ed25519 AAAA",
        b"|2|a|b ssh-ed25519 AAAA",
        b"|",
        b"# form\x0cfeed",
        b"@revoked",
    ]
    own.parent.mkdir()
    own.write_bytes(b"\n".join(broken))
    keys = HostKeys(own)
    await connect(sshd, keys)
    lines = own.read_bytes().splitlines()
    assert own.read_bytes().startswith(b"\n".join(broken) + b"\n|1|")
    sshd.restart(new_host_key=True)
    assert f"({own} line {len(broken) + 1})" in await refusal(sshd, keys)
    assert own.read_bytes().splitlines() == lines


@pytest.mark.parametrize("hashed", [False, True], ids=["plain", "hashed"])
@pytest.mark.parametrize(
    "names",
    ["box", "Box.Example.com", "a,box,b", "*.example.com", "*.example.com,!box.example.com", "b?x", "[box]:2222",
     "[*.example.com]:*", "!box,*", "10.0.0.?", "[b]ox", "fe80::1", "|1|"],
)  # fmt: skip
def test_names_match_as_in_openssh(tmp_path: Path, names: str, hashed: bool) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line_for(names, new_key()) + "\n")
    if hashed:
        subprocess.run(["ssh-keygen", "-H", "-f", file], capture_output=True, check=False)
    for name in ("box", "bix", "a", "box.example.com", "other.example.com", "[box]:2222", "[o.example.com]:22022",
                 "10.0.0.1", "10.0.0.11", "fe80::1", "ob"):  # fmt: skip
        assert bool(look_up([KnownHostsFile(file)], name).keys) == knows(file, name), name

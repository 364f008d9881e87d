"""`runturn doctor` on hosts over SSH: whatever is wrong with one, it is named, and the others are looked at."""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.command import Command, Signal
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status, TurnResult
from adapters.registry import BUILT_IN
from adapters.usage import NO_USAGE
from ops.ledger import AttemptEnd, Claim, Ledger
from ops.ledger.schema import turns
from ops.settings import load_settings
from ops.settings.state_dir import StateDir
from remote.follower import Follower, Lease
from remote.host import Channel
from remote.local import LocalHost
from remote.spool import Spool
from tests.integration.cli.conftest import Cli
from tests.support.claiming import claim_turn
from tests.support.needs import need
from tests.support.processes import end_turns
from tests.support.ssh import keys
from tests.support.ssh.accounts import account
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until
from workers.agents.registry import build_registry
from workers.doctor.check import Check
from workers.doctor.host import HostDoctor
from workers.doctor.host_checks import clock
from workers.hosts.from_settings import configured_hosts
from workers.hosts.inventory import TurnHost

CONNECTION = ["reach", "host key", "login"]
AGENTS = [f"agent {entry.name}" for entry in BUILT_IN]
NO_PORT = 1  # nothing listens there

Configure = Callable[..., None]


@pytest.fixture(autouse=True)
def _openssh() -> None:
    need("sshd")


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


@pytest.fixture
def configure(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Configure:
    """Put hosts into the settings. Claude Code is not what turns run there by default."""

    def put(*hosts: dict[str, Any], **ssh: object) -> None:
        monkeypatch.setenv("RUNTURN_AGENT__KIND", "scripted")
        monkeypatch.setenv(
            "RUNTURN_SSH_HOSTS", json.dumps([{"spool_dir": f"{tmp_path}/spool"} | h for h in hosts])
        )
        monkeypatch.setenv("RUNTURN_SSH", json.dumps(ssh))

    return put


def _host(sshd: Sshd, name: str = "h1", **fields: Any) -> dict[str, Any]:
    place = {"name": name, "address": sshd.host, "port": sshd.port, "user": getpass.getuser()}
    return {**place, "identity": str(sshd.client_key), **fields}


def _of(said: Any, host: str | None = "h1") -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in said.document["checks"] if check["host"] == host}


def test_healthy_host_has_all_that_a_turn_needs(
    cli: Cli, configure: Configure, sshd: Sshd, tmp_path: Path
) -> None:
    configure(_host(sshd, workspace_roots=[str(tmp_path)]))
    said = cli("doctor", "--host", "h1", "--json")
    assert (said.status, said.err, said.document["healthy"]) == (0, "", True)
    checks = _of(said)
    names = [
        "tools",
        "spool directory",
        "isolation",
        f"workspaces {tmp_path}",
        *AGENTS,
        "channels",
        "clock",
        "spools",
    ]
    assert [check["name"] for check in said.document["checks"]] == ["broker", *CONNECTION, *names]
    assert list(checks) == [*CONNECTION, *names]
    assert checks["spool directory"]["detail"].startswith(f"{tmp_path}/spool, ")
    assert checks["channels"]["detail"] == "8 shells on one connection"
    assert checks["clock"]["detail"] == "same as ours"
    assert checks["spools"]["detail"] == "0 running, 0 left over"
    assert list((tmp_path / "spool").iterdir()) == []
    assert not (tmp_path / "state" / "ledger.sqlite3").exists()  # nobody had to look into it


def test_host_with_problems_hides_neither_the_others_nor_the_installation(
    cli: Cli, configure: Configure, sshd: Sshd
) -> None:
    configure(_host(sshd, port=NO_PORT), _host(sshd, "h2"))
    said = cli("doctor", "--json")
    assert (said.status, said.err) == (1, "")
    assert list(_of(said, None)) == ["configuration", "state directory", "ledger", "dead letters", "broker"]
    assert list(_of(said, "local")) == ["tools", "spool directory", "isolation", *AGENTS, "spools"]
    assert list(_of(said, "h1")) == ["reach"]
    assert list(_of(said, "h2"))[-1] == "spools"
    assert all(check["ok"] for check in _of(said, "h2").values())


def test_people_read_host_by_host_what_is_wrong_and_what_to_do(cli: Cli, configure: Configure, sshd: Sshd) -> None:
    configure(_host(sshd), _host(sshd, "h2", port=NO_PORT))
    said = cli("doctor")
    assert "\nhost local\n✓ tools " in said.out
    assert "\nhost h1\n✓ reach " in said.out
    assert f"\nhost h2\n✗ reach             127.0.0.1:{NO_PORT} cannot be reached" in said.out
    assert said.out.rpartition("✗")[2].count("\n    → start it") == 1


def test_host_that_is_down_is_out_of_reach(cli: Cli, configure: Configure, sshd: Sshd) -> None:
    configure(_host(sshd))
    sshd.stop()
    check = _only_failure(cli, "reach")
    assert "cannot be reached" in check["detail"]
    assert "ssh_hosts" in check["remedy"]


def test_frozen_host_is_out_of_reach(cli: Cli, configure: Configure, sshd: Sshd) -> None:
    configure(_host(sshd), connect_timeout_ms=300)
    sshd.freeze()
    assert "did not answer" in _only_failure(cli, "reach")["detail"]


def test_changed_host_key_is_told_with_the_fingerprint(cli: Cli, configure: Configure, sshd: Sshd) -> None:
    configure(_host(sshd))
    assert cli("doctor", "--host", "h1").status == 0
    sshd.restart(new_host_key=True)
    check = _only_failure(cli, "host key")
    assert sshd.host_fingerprint in check["detail"]
    assert "administrator" in check["remedy"]


def test_unknown_host_key_is_told_where_keys_have_to_be_known(cli: Cli, configure: Configure, sshd: Sshd) -> None:
    configure(_host(sshd), host_keys="strict")
    assert sshd.host_fingerprint in _only_failure(cli, "host key")["detail"]


def test_host_key_that_is_not_checked_is_told(cli: Cli, configure: Configure, sshd: Sshd) -> None:
    configure(_host(sshd), host_keys="off")
    assert "NOT CHECKED" in _of(cli("doctor", "--host", "h1", "--json"))["host key"]["detail"]


def test_refused_login_is_told(cli: Cli, configure: Configure, sshd: Sshd, tmp_path: Path) -> None:
    configure(_host(sshd, identity=str(keys.new_key(tmp_path / "stranger"))))
    check = _only_failure(cli, "login")
    assert "refuses the login" in check["detail"]
    assert "BatchMode" in check["remedy"]


def _only_failure(cli: Cli, name: str) -> dict[str, Any]:
    """What keeps us from looking any further."""
    said = cli("doctor", "--host", "h1", "--json")
    assert (said.status, said.err, list(_of(said))) == (1, "", [name])
    return _of(said)[name]


def test_missing_tool_is_named_and_hides_what_needs_it(cli: Cli, configure: Configure, tmp_path: Path) -> None:
    poor = tmp_path / "bin"
    poor.mkdir()
    for tool in ("sh", "head", "mktemp", "mkdir", "mv", "rm", "tail", "grep", "tr", "wc", "sleep", "date"):
        (poor / tool).symlink_to(need(tool))
    with Sshd(f"SetEnv PATH={poor}") as sshd:
        configure(_host(sshd))
        said = cli("doctor", "--host", "h1", "--json")
        assert list(_of(said)) == [*CONNECTION, "tools"]
        assert _of(said)["tools"]["detail"].endswith("missing: setsid")
        assert "h1's path in ssh_hosts" in _of(said)["tools"]["remedy"]
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "setsid").symlink_to(need("setsid"))
        configure(_host(sshd, path=[str(tmp_path / "more")]))
        assert _of(cli("doctor", "--host", "h1", "--json"))["tools"]["ok"]


def test_account_that_runs_no_commands_is_told(cli: Cli, configure: Configure) -> None:
    with Sshd("ForceCommand false") as sshd:
        configure(_host(sshd))
        said = cli("doctor", "--host", "h1", "--json")
    assert list(_of(said)) == [*CONNECTION, "tools"]
    assert "ForceCommand" in _of(said)["tools"]["remedy"]


def test_directories_are_those_of_whoever_logs_in(cli: Cli, configure: Configure, sshd: Sshd) -> None:
    with account("dash") as user:
        free = user.own(user.home / "workspaces")
        roots = [str(free), "/usr", f"{free}/missing"]
        configure(_host(sshd, user=user.name, spool_dir="~/turns", workspace_roots=roots))
        said = cli("doctor", "--host", "h1", "--json")
        checks = _of(said)
        assert (user.home / "turns").owner() == user.name
        assert (user.home / "turns").stat().st_mode & 0o777 == 0o700
        configure(_host(sshd, user=user.name, spool_dir="/usr/turns"))
        locked = _of(cli("doctor", "--host", "h1", "--json"))["spool directory"]
    assert [checks[f"workspaces {root}"]["ok"] for root in roots] == [True, False, False]
    assert checks["workspaces /usr"]["detail"] == "not writable"
    assert "no such workspace" in checks[f"workspaces {free}/missing"]["detail"]
    assert "h1's workspace_roots" in checks[f"workspaces {free}/missing"]["remedy"]
    assert (said.status, checks["spool directory"]["ok"], checks["spools"]["ok"]) == (1, True, True)
    assert (locked["ok"], "Permission denied" in locked["detail"]) == (False, True)
    assert "h1's spool_dir" in locked["remedy"]


def test_missing_agent_is_named_by_its_place_there(
    cli: Cli, configure: Configure, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(_host(sshd, agents={"claude-code": "/nowhere/claude"}))
    check = _of(cli("doctor", "--host", "h1", "--json"))["agent claude-code"]
    assert (check["ok"], check["detail"].partition(";")[0]) == (True, "/nowhere/claude is not usable")
    assert check["warning"]  # so that no tick stands beside it
    monkeypatch.setenv("RUNTURN_AGENT__KIND", "claude-code")
    said = cli("doctor", "--host", "h1", "--json")
    check = _of(said)["agent claude-code"]
    assert (said.status, check["ok"], check["detail"]) == (1, False, "/nowhere/claude is not usable")
    assert "agents or path for h1 in ssh_hosts" in check["remedy"]


def test_missing_agent_on_the_workers_own_machine_is_none_of_a_problem_where_turns_run_elsewhere(
    cli: Cli, configure: Configure, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(_host(sshd))
    monkeypatch.setenv("RUNTURN_AGENT__KIND", "claude-code")
    monkeypatch.setenv("RUNTURN_AGENT__COMMAND", "/nowhere/claude")
    assert _of(cli("doctor", "--json"), "local")["agent claude-code"]["ok"]
    said = cli("doctor", "--host", "local", "--json")
    assert (said.status, _of(said, "local")["agent claude-code"]["ok"]) == (1, False)
    assert {check["host"] for check in said.document["checks"]} == {None, "local"}  # None: the broker


def test_credentials_are_told_by_name_and_place(
    cli: Cli, configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claude = tmp_path / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text("#!/bin/sh\necho '9.8.7 (Claude Code)'\n")
    claude.chmod(0o755)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-of-the-worker")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "secret-that-stays")
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    monkeypatch.delenv("CLAUDE_CODE_OAUTH_TOKEN", raising=False)
    with Sshd(
        "SetEnv CLAUDE_CODE_USE_BEDROCK=1 AWS_PROFILE=secret-of-the-host ANTHROPIC_BASE_URL= IS_SANDBOX=1"
    ) as sshd:
        configure(_host(sshd, path=[str(claude.parent)], env=["ANTHROPIC_API_KEY", "TERM"]))
        said = cli("doctor", "--host", "h1", "--json")
    assert _of(said)["agent claude-code"]["detail"].split("; ") == [
        "version 9.8.7",
        "not tested with 9.8.7: success with tools, resume, structured output, API refusal, rate limit, cut "
        "stream, cancel, kill of agent and worker and requests outside the conversation were tested with "
        "2.0.76, 2.1.0, 2.1.32, 2.1.69, "
        "2.1.105, 2.1.197 and 2.1.330",
        "credentials in the worker's environment: ANTHROPIC_API_KEY",
        "credentials in the environment of h1: CLAUDE_CODE_USE_BEDROCK, AWS_PROFILE",
        "not forwarded, as h1's env does not list them: ANTHROPIC_AUTH_TOKEN",
    ]
    assert _of(said)["agent claude-code"]["warning"]
    assert "secret-" not in said.out


def test_few_sessions_on_a_connection_cost_more_connections(cli: Cli, configure: Configure) -> None:
    with Sshd("MaxSessions 4") as sshd:
        configure(_host(sshd))
        said = cli("doctor", "--host", "h1", "--json")
    check = _of(said)["channels"]
    assert (said.status, check["ok"]) == (1, False)
    assert "more than 4 on one connection (MaxSessions)" in check["detail"]
    assert check["detail"].endswith("a connection for every 4 turns")
    assert "MaxSessions" in check["remedy"]


@pytest.mark.parametrize(
    ("ours_is_late_by_s", "ok", "words"),
    [
        (-3600.0, False, "s behind ours"),
        (-30.0, True, "s behind ours"),
        (0.0, True, "same as ours"),
        (30.0, True, "s ahead of ours"),
        (3600.0, False, "s ahead of ours"),
    ],
)
def test_clock_may_be_off_as_far_as_logins_bear_it(ours_is_late_by_s: float, ok: bool, words: str) -> None:
    host = TurnHost(LocalHost({"PATH": os.environ["PATH"]}), "/nowhere")
    check = asyncio.run(clock(host, lambda: time.time() - ours_is_late_by_s))
    assert (check.ok, bool(check.remedy)) == (ok, not ok)
    assert words in check.detail


def test_orphan_is_told_from_a_turn_that_somebody_is_responsible_for(
    cli: Cli, configure: Configure, sshd: Sshd, tmp_path: Path
) -> None:
    configure(_host(sshd))
    spool = tmp_path / "spool"
    claim, ledger = _attempt(tmp_path, "known.1")
    try:
        asyncio.run(_abandoned(str(spool), tmp_path, "known.1", "unknown.1"))
        check = _of(cli("doctor", "--host", "h1", "--json"))["spools"]
        assert (check["ok"], check["detail"]) == (True, "1 running, 0 left over, 1 orphaned: unknown.1")
        assert "terminated when their lease expires" in check["remedy"]
        ledger.queue.wait(claim, 9.0, "host_lost", 2.0, AttemptEnd(1, NO_USAGE, "host_lost"))
        check = _of(cli("doctor", "--host", "h1", "--json"))["spools"]
        assert check["detail"] == "0 running, 0 left over, 2 orphaned: known.1, unknown.1"
    finally:
        ledger.close()
        end_turns(spool)


@pytest.mark.parametrize("how", ["killed", "gone"])
def test_running_turn_without_a_worker_is_named_with_what_becomes_of_it(
    cli: Cli, configure: Configure, sshd: Sshd, tmp_path: Path, how: str
) -> None:
    configure(_host(sshd))
    spool = tmp_path / "spool"
    claim, ledger = _attempt(tmp_path, "known.1", lease_s=600.0 if how == "gone" else -1.0)
    try:
        if how == "gone":
            ledger.queue.release([claim], time.time())
        asyncio.run(_abandoned(str(spool), tmp_path, "known.1"))
        check = _of(cli("doctor", "--host", "h1", "--json"))["spools"]
        assert check["detail"] == f"0 running, 0 left over, 1 without a worker: turn {claim.turn_id}"
        assert "if none is running, start one, which takes them over" in check["remedy"]
        assert "if none starts, they are terminated when their lease expires" in check["remedy"]
    finally:
        ledger.close()
        end_turns(spool)


def test_usage_that_only_a_newer_runturn_can_read_is_named(cli: Cli, tmp_path: Path) -> None:
    claim, ledger = _attempt(tmp_path, "known.1")
    ledger.queue.settle(
        claim,
        TurnResult(turn_id=claim.turn_id, status=Status.CANCELLED),
        time.time(),
        AttemptEnd(1, NO_USAGE, "host_lost"),
    )
    stored = json.dumps(claim.request.model_dump(mode="json") | {"colour": "green"})
    with ledger._database.write() as connection:
        connection.execute(turns.update().values(request=stored))
    ledger.close()
    asyncio.run(_left_over(tmp_path, "known.1", "unknown.1"))
    check = _of(cli("doctor", "--host", "local", "--json"), "local")["spools"]
    words = "0 running, 2 left over, 1 with usage that only a newer runturn can read: known.1"
    assert (check["ok"], check["detail"]) == (True, words)
    assert "upgrade" in check["remedy"]


async def _left_over(root: Path, *spool_ids: str) -> None:
    """Spools of this machine whose turns have ended."""
    host = LocalHost({"PATH": os.environ["PATH"], "HOME": str(root)})
    spools = root / "state" / "spool"
    for name in spool_ids:
        async with Follower(host, Spool(str(spools), name, "seal"), Command(("true",), str(root))) as turn:
            async for _ in turn:
                pass
        until(lambda end=spools / name / "end": end.read_text().strip(), "the end to be noted")


def test_ledger_that_hangs_does_not_keep_the_doctor_from_its_end(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.doctor.installation.HostDoctor", partial(HostDoctor, limit_s=60.0))
    asyncio.run(_left_over(tmp_path, "unknown.1"))
    with (tmp_path / "state" / "ledger.sqlite3.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as somebody does who opens it
        said = cli("doctor", "--host", "local", "--json")
    check = _of(said, "local")["spools"]
    assert (said.status, said.err) == (1, "")
    assert "another process has been opening it for more than 4 s" in check["detail"]


def test_ssh_config_that_hangs_does_not_keep_the_doctor_from_its_end(
    cli: Cli, configure: Configure, sshd: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "ssh_config").write_text(f'Match exec "until [ -e {tmp_path}/open ]; do sleep 0.05; done"\n')
    configure(_host(sshd), config_file=f"{tmp_path}/ssh_config", connect_timeout_ms=300)
    try:
        assert "could not be read within the connect timeout" in _only_failure(cli, "login")["detail"]
    finally:
        (tmp_path / "open").touch()


def _attempt(root: Path, spool_id: str, lease_s: float = 600.0) -> tuple[Claim, Ledger]:
    """An attempt that has not ended, by the ledger."""
    ledger = Ledger.open(StateDir.open(root / "state").ledger_url)
    request = TurnRequest.parse({"prompt": "do it", "workspace": str(root), "agent": "scripted"})
    ledger.queue.submit_many([request], 1.0)
    claim = claim_turn(ledger, request.turn_id, "w1", time.time(), lease_s)
    assert isinstance(claim, Claim)
    ledger.queue.begin_attempt(claim, host="h1", spool_id=spool_id, session_id=None, resume=False, now=1.0)
    return claim, ledger


async def _abandoned(root: str, workspace: Path, *spool_ids: str) -> None:
    """Turns that run, and that nobody follows any more."""
    host = LocalHost({"PATH": os.environ["PATH"], "HOME": str(workspace)})
    argv = ("sh", "-c", "echo begun; exec sleep 300")
    command = Command(argv=argv, cwd=str(workspace), stop=(Signal("KILL", 1.0),))
    for name in spool_ids:
        async with Follower(host, Spool(root, name, "seal"), command, lease=Lease(300)) as turn:
            assert (await anext(aiter(turn))).lines == [b"begun"]


def test_host_that_freezes_is_given_up_in_time(configure: Configure, sshd: Sshd, tmp_path: Path) -> None:
    configure(_host(sshd))
    host = configured_hosts(load_settings(), StateDir(tmp_path / "state")).get("h1")
    with asyncio.Runner() as runner:
        runner.run(host.host.open_channel())
        sshd.freeze()
        (check,) = _impatient(host).examine(runner)
        sshd.thaw()
    assert check == Check("reach", False, "no answer within 0.2 s", check.remedy, "h1")
    assert "ssh -v" in check.remedy


def test_host_that_has_fallen_silent_is_asked_nothing_more() -> None:
    with asyncio.Runner() as runner:
        (check,) = _impatient(TurnHost(Silent(), "/nowhere")).examine(runner)
    assert check == Check("tools", False, "no answer within 0.2 s", check.remedy, "h1")
    assert "runturn doctor --host h1" in check.remedy


def test_whatever_a_vital_check_raises_is_its_outcome_and_the_last_one() -> None:
    with asyncio.Runner() as runner:
        (check,) = _impatient(TurnHost(Broken(), "/nowhere")).examine(runner)
    assert check == Check("tools", False, "ZeroDivisionError", "", "h1")


def _impatient(host: TurnHost) -> HostDoctor:
    settings = load_settings()
    return HostDoctor(host, settings, build_registry(settings), lambda: pytest.fail("no ledger"), {}, True, 0.2)


class Silent:
    """A host that takes everything and answers nothing."""

    name = "h1"
    path = ""
    rest_s = 0.0

    async def open_channel(self) -> Channel:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        """Nothing is open."""


class Broken(Silent):
    """A host that has a fault of ours."""

    async def open_channel(self) -> Channel:
        raise ZeroDivisionError


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_unknown_host_is_bad_input_that_names_those_there_are(
    cli: Cli, configure: Configure, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    configure({"name": "h1"}, {"name": "h2"})
    said = cli("doctor", "--host", "h3", *arguments)
    assert (said.status, said.out) == (2, "")
    assert said.err == "runturn: host: there is no host 'h3'; known: h1, h2, local\n"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("arguments", [(), ("--host", "h1")])
def test_hosts_that_cannot_be_told_apart_are_a_fault_of_the_configuration(
    cli: Cli, configure: Configure, arguments: tuple[str, ...]
) -> None:
    configure({"name": "h1"}, {"name": "local"})
    said = cli("doctor", "--json", *arguments)
    (check,) = said.document["checks"]
    assert (said.status, check["name"], check["ok"], check["host"]) == (1, "configuration", False, None)
    assert "ssh_hosts" in check["detail"]

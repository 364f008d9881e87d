"""Which hosts an installation has, and which of them a request may run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.command import Command
from adapters.errors import InvalidRequest
from adapters.isolation import Isolation, Network
from adapters.protocol.request import TurnRequest
from ops.errors import SettingsError
from ops.settings import Settings, SshHostSettings
from ops.settings.state_dir import StateDir
from remote.errors import HostError
from workers.hosts.from_settings import configured_hosts
from workers.hosts.inventory import Hosts


def hosts(tmp_path: Path, *tables: dict[str, Any], **settings: Any) -> Hosts:
    """The hosts of an installation with these entries of `ssh_hosts`."""
    entries = tuple(SshHostSettings(**table) for table in tables)
    return configured_hosts(
        Settings(state_dir=tmp_path, ssh_hosts=entries, **settings), StateDir.open(tmp_path / "state")
    )


def names(found: Hosts, **fields: Any) -> list[str]:
    """The hosts that such a request may run on."""
    request = TurnRequest.parse({"prompt": "do it", "workspace": "/", **fields})
    return [host.name for host in found.candidates(request)]


def test_without_ssh_hosts_turns_run_here(tmp_path: Path) -> None:
    found = hosts(tmp_path)
    assert names(found) == ["local"]
    assert [host.launcher for host in found] == ["local"]


def test_with_ssh_hosts_turns_run_there_unless_they_name_this_machine(tmp_path: Path) -> None:
    found = hosts(tmp_path, {"name": "a"}, {"name": "b"})
    assert names(found) == ["a", "b"]
    assert names(found, host="local") == ["local"]


def test_requests_choose_by_labels(tmp_path: Path) -> None:
    found = hosts(
        tmp_path, {"name": "a", "labels": {"gpu": "yes"}}, {"name": "b", "labels": {"gpu": "yes", "zone": "eu"}}
    )
    assert names(found, host_labels={"gpu": "yes"}) == ["a", "b"]
    assert names(found, host_labels={"gpu": "yes", "zone": "eu"}) == ["b"]
    assert names(found, host="b", host_labels={"zone": "eu"}) == ["b"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": "c"}, "host: there is no host 'c'; known: a, local"),
        (
            {"host_labels": {"zone": "eu"}},
            "host_labels: no host has all of these labels; configured: local (no labels); a",
        ),
        (
            {"host": "a", "host_labels": {"zone": "eu"}},
            "host_labels: host a lacks some of these labels; configured: ",
        ),
    ],
)
def test_what_no_host_fulfils_is_refused_with_what_there_is(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as error:
        names(hosts(tmp_path, {"name": "a", "labels": {"gpu": "yes"}}), **fields)
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "local"}, "is the worker's own machine"),
        ({"name": "a", "address": "user@"}, "ssh_hosts.a: a host to connect to is [user@]address[:port]"),
        ({"name": "a", "address": "b:0"}, "a port is a number from 1 to 65535"),
        ({"name": "a", "jump": "c,,d"}, "ssh_hosts.a: a host to connect to"),
        ({"name": "a", "jump": "b,a"}, "ssh_hosts.a.jump: a host cannot be its own jump host"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        hosts(tmp_path, table)
    assert message in str(error.value)


def test_host_of_another_workers_configuration_is_not_worth_a_second_try(tmp_path: Path) -> None:
    found = hosts(tmp_path)
    with pytest.raises(HostError) as error:
        found.get("gone").host.open_channel().send(None)  # type: ignore[attr-defined]
    assert type(error.value) is HostError, "HostUnreachable would be tried again for as long as an agent may live"
    assert "it is not in this worker's configuration" in str(error.value)


def test_host_says_where_its_agents_are(tmp_path: Path) -> None:
    found = hosts(tmp_path, {"name": "a", "agents": {"claude-code": "/opt/claude"}})
    command = Command(("claude", "-p"), "/")
    assert found.get("a").adapt("claude-code", command).argv == ("/opt/claude", "-p")
    assert found.get("a").adapt("scripted", command).argv == ("claude", "-p")
    assert found.get("local").adapt("claude-code", command).argv == ("claude", "-p")


@pytest.mark.parametrize(
    ("settings", "fields", "network", "isolation"),
    [
        ({}, {}, Network.FULL, Isolation.NONE),
        ({}, {"sandbox_network": "none"}, Network.NONE, Isolation.SANDBOX),
        ({}, {"sandbox_network": "full"}, Network.FULL, Isolation.NONE),
        ({"sandbox_network": "none"}, {}, Network.NONE, Isolation.SANDBOX),
        ({"sandbox_network": "none"}, {"sandbox_network": "full"}, Network.NONE, Isolation.SANDBOX),
        ({"sandbox_network": "none", "isolation": "none"}, {"isolation": "none"}, Network.NONE, Isolation.SANDBOX),
        ({}, {"isolation": "none"}, Network.FULL, Isolation.NONE),
        ({"isolation": "sandbox"}, {"isolation": "namespace"}, Network.FULL, Isolation.SANDBOX),
        ({"isolation": "none"}, {"isolation": "namespace"}, Network.FULL, Isolation.NAMESPACE),
        ({"isolation": "none"}, {"max_processes": 10}, Network.FULL, Isolation.NAMESPACE),
    ],
)
def test_request_may_only_tighten_its_hosts_isolation(
    tmp_path: Path,
    settings: dict[str, Any],
    fields: dict[str, Any],
    network: Network,
    isolation: Isolation,
) -> None:
    request = TurnRequest.parse({"prompt": "do it", "workspace": "/", **fields})
    for host in hosts(tmp_path, {"name": "a", **settings}, **settings):
        containment = host.containment(request)
        assert (containment.network, containment.isolation) == (network, isolation)


@pytest.mark.parametrize(
    ("fields", "memory", "processes", "cpus"),
    [
        ({}, 2**30, 50, 2.5),
        ({"max_memory": "512MiB", "max_processes": 60, "max_cpus": 1}, 2**29, 50, 1.0),
        ({"max_memory": "2GiB", "max_processes": 20, "max_cpus": 3}, 2**30, 20, 2.5),
    ],
)
def test_lower_of_two_limits_applies(
    tmp_path: Path, fields: dict[str, Any], memory: int, processes: int, cpus: float
) -> None:
    request = TurnRequest.parse({"prompt": "do it", "workspace": "/", **fields})
    host = hosts(tmp_path, {"name": "a", "max_memory": "1GiB", "max_processes": 50, "max_cpus": 2.5}).get("a")
    limits = host.containment(request)
    assert (limits.max_memory, limits.max_processes, limits.max_cpus) == (memory, processes, cpus)
    assert limits.isolation is Isolation.NAMESPACE


@pytest.mark.parametrize(
    ("brings", "limit"),
    [
        ({"worktree": {"repository": "/srv/shop"}}, 2**30),
        ({"worktree": {"repository": "/srv/shop"}, "max_disk": "512MiB"}, 2**29),
        ({"workspace": "/srv/made/1/workspace"}, 2**30),
        ({"workspace": "/srv/shop"}, None),
    ],
)
def test_only_workspaces_that_turns_bring_have_limited_files(
    tmp_path: Path, brings: dict[str, Any], limit: int | None
) -> None:
    request = TurnRequest.parse({"prompt": "do it", **brings})
    limits = hosts(tmp_path, {"name": "a", "max_disk": "1GiB"}).get("a").containment(request)
    assert (limits.max_disk, limits.isolation) == (limit, Isolation.NONE)


def test_limit_on_the_files_of_an_existing_workspace_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="max_disk: applies only to a per-turn workspace"):
        TurnRequest.parse({"prompt": "do it", "workspace": "/srv/shop", "max_disk": "1GiB"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("isolation", "jail"),
        ("sandbox_network", "some"),
        ("sandbox_paths", ["/"]),
        ("sandbox_paths", ["/:rw"]),
        ("sandbox_paths", ["/srv/../etc"]),
        ("sandbox_paths", ["srv"]),
        ("max_memory", "4GiB;rm"),
        ("max_memory", "4 of them"),
        ("max_memory", "9EiB"),
        ("max_memory", "1MiB"),
        ("max_processes", 9),
        ("max_processes", 10**18),
        ("max_cpus", 0),
    ],
)
def test_setting_of_isolation_that_makes_no_sense_is_named(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        hosts(tmp_path, {"name": "a", field: value})
    if field != "sandbox_paths":
        with pytest.raises(InvalidRequest, match=field):
            TurnRequest.parse({"prompt": "do it", "workspace": "/", field: value})

"""Which host a turn runs on when some of them cannot run it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status, TurnResult
from remote.errors import HostAuthFailed
from remote.host import Channel
from remote.local import LocalHost
from tests.support.fleets.site import Site
from workers.context import WorkerContext
from workers.hosts.inventory import Hosts, TurnHost
from workers.turn.run import RunTurn
from workers.turn.settlement import Parked

ONE_LINE = {"lines": ["{}"]}


class Locked(LocalHost):
    """A host that nobody is let into."""

    __slots__ = ()

    async def open_channel(self) -> Channel:
        """See `Host.open_channel`."""
        raise HostAuthFailed(self.name, "it refuses the login")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def host(site: Site, name: str, kind: type[LocalHost] = LocalHost, **fields: Any) -> TurnHost:
    environment = {"PATH": os.environ["PATH"], "HOME": str(site.root)}
    return TurnHost(kind(environment, name), str(site.root / f"spool-{name}"), **fields)


def lacking_its_agent(site: Site, name: str) -> TurnHost:
    return host(site, name, programs={"scripted": "/no/such/agent"})


def worker(site: Site, *hosts: TurnHost) -> WorkerContext:
    return replace(site.worker(), hosts=Hosts(hosts))


def finish(site: Site, context: WorkerContext, turn_id: str) -> TurnResult:
    while True:
        outcome = asyncio.run(RunTurn(context, site.claim(turn_id)).drive())
        if isinstance(outcome, TurnResult):
            return outcome
        assert isinstance(outcome, Parked), outcome


def tried(site: Site, turn_id: str) -> list[tuple[str, str | None]]:
    return [(attempt.host, attempt.outcome) for attempt in site.claim(turn_id).attempts]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("agent_not_found", lacking_its_agent),
        ("host_auth_failed", lambda site, name: host(site, name, Locked)),
        ("spool_unwritable", lambda site, name: replace(host(site, name), spool_root="/proc/no/spools")),
    ],
)
def test_host_that_lacks_something_does_not_end_a_turn_that_another_can_run(
    site: Site, kind: str, bad: Any
) -> None:
    context = worker(site, bad(site, "bad"), host(site, "good"))
    turn_id = site.queue(options=ONE_LINE)
    outcome = asyncio.run(RunTurn(context, site.claim(turn_id)).drive())
    assert isinstance(outcome, Parked)
    assert tried(site, turn_id) == [("bad", kind)]
    result = finish(site, context, turn_id)
    assert (result.host, result.attempts, site.starts) == ("good", 2, 1)


def test_turn_that_every_host_lacks_something_for_fails_when_all_were_tried(site: Site) -> None:
    hosts = [lacking_its_agent(site, "a"), lacking_its_agent(site, "b"), host(site, "c", Locked)]
    turn_id = site.queue(options=ONE_LINE, max_attempts=9)
    result = finish(site, worker(site, *hosts), turn_id)
    assert (result.status, result.attempts, site.starts) == (Status.FAILED, 3, 0)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("host_auth_failed", False)


def test_turn_that_names_its_host_fails_with_it(site: Site) -> None:
    context = worker(site, lacking_its_agent(site, "bad"), host(site, "good"))
    result = finish(site, context, site.queue(options=ONE_LINE, host="bad"))
    assert result.error is not None
    assert (result.host, result.attempts, result.error.kind) == ("bad", 1, "agent_not_found")


def test_turn_runs_where_its_workspace_may_be(site: Site) -> None:
    elsewhere = host(site, "elsewhere", workspace_roots=("/srv/other",))
    context = worker(site, elsewhere, host(site, "here", workspace_roots=(str(site.root),)))
    result = finish(site, context, site.queue(options=ONE_LINE))
    assert (result.host, result.attempts) == ("here", 1)


@pytest.mark.parametrize(
    ("workspace", "roots", "admitted"),
    [
        ("/srv/a/b", (), True),
        ("/srv/a/b", ("/srv/a",), True),
        ("/srv/a", ("/srv/a",), True),
        ("/srv/ab", ("/srv/a",), False),
        ("/srv/a/../b", ("/srv/a",), False),
        ("/srv/a", ("/opt", "~/work"), True),  # nobody here knows where its home is
    ],
)
def test_workspace_is_admitted_by_its_name(
    site: Site, workspace: str, roots: tuple[str, ...], admitted: bool
) -> None:
    assert host(site, "h", workspace_roots=roots).admits(workspace) is admitted

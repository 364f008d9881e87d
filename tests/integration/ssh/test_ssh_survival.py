"""Turns over SSH survive what befalls link, server and worker: the same events, one result, one booking each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from tests.support.needs import need
from tests.support.ssh.links import Link, need_links
from tests.support.ssh.ssh_stage import Stage, open_stage

LEASE_MS = 60_000  # a turn has to outlive its worker till the next one takes over


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for all of them, behind a link where there can be one."""
    need("sshd")
    with ExitStack() as around:
        link = around.enter_context(Link()) if Link.available() is None else None
        folder = tmp_path_factory.mktemp("survival")
        yield around.enter_context(open_stage(folder, link, agent__lease_ms=str(LEASE_MS)))


@contextmanager
def link_cut(stage: Stage) -> Iterator[None]:
    """Nothing gets through, and the server is rid of its sessions meanwhile. Nobody tells the worker."""
    assert stage.link
    stage.link.cut()
    stage.sshd.kill_sessions()
    try:
        yield
    finally:
        stage.link.mend()


@contextmanager
def sessions_killed(stage: Stage) -> Iterator[None]:
    """All connections end; the server takes new ones at once."""
    stage.sshd.kill_sessions()
    yield


@contextmanager
def sshd_killed(stage: Stage) -> Iterator[None]:
    """The server is away, and its sessions have ended."""
    stage.sshd.stop()
    try:
        yield
    finally:
        stage.sshd.start()


@contextmanager
def worker_killed(stage: Stage) -> Iterator[None]:
    """The worker is killed, and another one takes its place."""
    stage.worker.kill()
    try:
        yield
    finally:
        stage.worker = stage.fleet.start_worker()


Fault = Callable[[Stage], AbstractContextManager[None]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "faults",
    [
        (sessions_killed,),
        (sshd_killed,),
        (link_cut,),
        (worker_killed,),
        (sshd_killed, worker_killed),
        (link_cut, worker_killed),
    ],
    ids=lambda faults: "_and_".join(fault.__name__ for fault in faults),
)
def test_turns_survive(stage: Stage, faults: tuple[Fault, ...]) -> None:
    if link_cut in faults:
        need_links()
    stage.begin()
    logins = stage.sshd.log().count("Accepted publickey")
    with ExitStack() as disturbances:
        for fault in faults:
            disturbances.enter_context(fault(stage))
        stage.go_on_unseen()
    stage.finish()
    assert stage.sshd.log().count("Accepted publickey") > logins

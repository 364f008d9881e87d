"""Fixtures of the remote room's tests: laboratories over different shells, and coroutines as tests."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.isolation import Isolation
from remote.containment import Containment
from tests.support.needs import need, need_namespaces
from tests.support.ssh.laboratory import Lab
from tests.support.ssh.ssh_laboratory import SshLab
from tests.support.ssh.sshd import Sshd

SHELLS = ("dash", "bash", "busybox")
HOSTS = (*SHELLS, "namespace")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine tests, each in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def search_paths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the PATH on which `sh` is a certain shell.

    With busybox, so is every other tool but `tail`, which would look for output once a second only.
    """

    def path_of(shell: str) -> str:
        folder = tmp_path_factory.mktemp(shell)
        program = need(shell)
        if shell != "busybox":
            (folder / "sh").symlink_to(program)
            return f"{folder}:/usr/bin:/bin"
        for applet in subprocess.check_output([program, "--list"], text=True).split():
            (folder / applet).symlink_to(need("tail") if applet == "tail" else program)
        return str(folder)

    return path_of


@pytest.fixture
def lab(tmp_path: Path, search_paths: Callable[[str], str]) -> Iterator[Lab]:
    """A host with the machine's own tools."""
    yield from opened(Lab(tmp_path / "lab", "/usr/bin:/bin"))


@pytest.fixture(params=HOSTS)
def any_lab(request: pytest.FixtureRequest, tmp_path: Path, search_paths: Callable[[str], str]) -> Iterator[Lab]:
    """A host for each kind of shell, and one that isolates agents."""
    if request.param == "namespace":
        need_namespaces()
        yield from opened(
            Lab(tmp_path / "lab", search_paths("dash"), containment=Containment(Isolation.NAMESPACE))
        )
    else:
        yield from opened(Lab(tmp_path / "lab", search_paths(request.param)))


def opened(lab: Lab) -> Iterator[Lab]:
    try:
        yield lab
    finally:
        lab.clean_up()


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    """A real OpenSSH server."""
    need("sshd")
    with Sshd() as server:
        yield server


@pytest.fixture
def site(tmp_path: Path) -> SshLab:
    """A worker's side of SSH."""
    return SshLab(tmp_path)

"""Workspaces that a sandbox does not show, however they are written: what it hides or protects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.isolation import Isolation
from remote.containment import Containment
from remote.errors import SpawnRefused
from tests.integration.remote.conftest import SHELLS, opened
from tests.support.needs import need, need_namespaces
from tests.support.ssh.laboratory import Lab

FORBIDDEN = {
    "system": "/etc",
    "part-of-the-system": "/usr/lib",
    "two-slashes": "//usr/lib",
    "three-slashes": "///usr/lib",
    "dots": "/tmp/../usr/./lib",
    "through-a-link-to-the-root": "{folder}/root/usr/lib",
    "through-a-relative-link": "{folder}/lib",
    "everything": "/",
    "home": "{home}",
    "home-with-slashes": "{home}//",
    "keys": "{home}/.ssh",
    "keys-with-two-slashes": "/{home}/.ssh",
    "keys-through-a-link-to-the-root": "{folder}/root{home}/.ssh",
    "what-contains-the-home": "{folder}",
    "spools": "{folder}/spools",
    "another-turn-s-spool": "{folder}/spools/another",
}
ALLOWED = {
    "workspace": "{folder}/workspace",
    "part-of-the-home": "{home}/project",
    "with-a-slash": "{home}/project/",
    "with-two-slashes": "/{home}/project",
    "through-a-link": "{folder}/root{home}/project",
}


@pytest.fixture(params=SHELLS)
def lab(request: pytest.FixtureRequest, tmp_path: Path, search_paths: Callable[[str], str]) -> Iterator[Lab]:
    """A host whose agents run in sandboxes, for each kind of shell."""
    need_namespaces()
    programs = search_paths(request.param)
    path = f"{programs}:{Path(need('bwrap')).parent}"
    containment = Containment(Isolation.SANDBOX, shown=(programs.split(":")[0],))
    lab = Lab(tmp_path / "lab", path, containment=containment)
    for directory in (lab.home / ".ssh", lab.home / "project", lab.root / "another"):
        directory.mkdir(parents=True)
    (lab.folder / "root").symlink_to("/")
    (lab.folder / "lib").symlink_to("root/usr/lib")
    yield from opened(lab)


def directory(lab: Lab, pattern: str) -> str:
    return pattern.format(folder=lab.folder, home=lab.home)


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_what_a_sandbox_hides_or_protects_is_no_workspace(lab: Lab, name: str) -> None:
    agent = lab.sh("echo ran", cwd=directory(lab, FORBIDDEN[name]))
    with pytest.raises(SpawnRefused) as refused:
        await lab.run(agent)
    assert refused.value.code == "workspace_not_isolated"


@pytest.mark.parametrize("name", ALLOWED)
async def test_other_directories_are(lab: Lab, name: str) -> None:
    said, end = await lab.run(lab.sh("touch made && pwd -P", cwd=directory(lab, ALLOWED[name])))
    assert end.code == 0, said
    assert Path(directory(lab, ALLOWED[name]), "made").exists()

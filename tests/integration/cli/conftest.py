"""The command line in this process, and a small fleet behind it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from workers.brokers.embedded import EmbeddedBroker
from workers.cli.main import run


class Said(NamedTuple):
    """What a command has said."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document that stdout holds."""
        return json.loads(self.out)


Cli = Callable[..., Said]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Cli]:
    """Runs a command in this process, in a fresh state directory; any exception that leaves it fails the test."""
    for name in [name for name in os.environ if name.startswith("RUNTURN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RUNTURN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Said:
        capsys.readouterr()
        status = run(list(arguments))
        out, err = capsys.readouterr()
        return Said(status, out, err)

    with logging_as_before():
        yield command
    EmbeddedBroker(tmp_path / "state" / "broker").stop()


@contextmanager
def logging_as_before() -> Iterator[None]:
    """A command may set up logging, for a process of its own; ours goes on."""
    changed = [logging.getLogger(name) for name in (None, "remote", "alembic", "asyncssh", "celery")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in changed]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def fleet_cli(cli: Cli, crew: Fleet, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same, talking to the fleet `crew`."""
    for name, value in crew.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(crew.workspace)
    return cli


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with a worker whose default agent replays recordings, and whose Claude Code is missing."""
    root = tmp_path_factory.mktemp("crew")
    agents = json.dumps({"claude-code": {"command": str(root / "claude")}})
    with Fleet(root, agent__kind="scripted", agents=agents) as fleet:
        fleet.start_worker()
        yield fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet without a worker yet."""
    with Fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def recording() -> Path:
    """A turn with two parallel tools."""
    return RECORDINGS / "a_parallel_tools.jsonl"

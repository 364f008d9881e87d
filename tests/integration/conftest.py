"""Fleets for the tests: with recordings, and with the real Claude Code on a scripted model API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.model_api import ModelApi, Script
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.support.brokers.fixtures import rabbitmq, vhost
from tests.support.coroutines import pytest_pyfunc_call
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS

__all__ = ["pytest_pyfunc_call", "rabbitmq", "vhost"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet without a worker yet."""
    with Fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def unforked() -> Iterator[None]:
    """Workers that start as users start them: /proc shows their own environment and command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fleet, "forks", False)
        yield


@pytest.fixture
def recording() -> Path:
    """A turn with two parallel tools."""
    return RECORDINGS / "a_parallel_tools.jsonl"


@contextmanager
def claude_fleet(
    root: Path, *scripts: Script, environment: Mapping[str, str] | None = None, **settings: str
) -> Iterator[tuple[Fleet, ModelApi]]:
    """A fleet with one worker whose agent is the real Claude Code, and the API it talks to."""
    binary = claude_binary()
    assert binary is not None, "the Claude Code CLI is missing; it comes with claude-agent-sdk"
    home = root / "home"
    home.mkdir()
    with ModelApi(*scripts) as api:
        variables = {**claude_environment(api.base_url, home, max_retries=1), **(environment or {})}
        with Fleet(root, variables, agent__command=str(binary), **settings) as fleet:
            fleet.start_worker()
            yield fleet, api

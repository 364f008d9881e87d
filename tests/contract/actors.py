"""Who plays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.contract.claude import Claude, script
from tests.contract.replay import Replay
from tests.contract.scenes import Actor, Turn
from tests.model_api import ModelApi

_CLAUDES = ("claude-code",)
AGENTS = (*_CLAUDES, "scripted")


@contextmanager
def cast(root: Path, turns: Sequence[Turn]) -> Iterator[dict[str, Actor]]:
    """All actors, with the APIs that they talk to."""
    home = root / "home"
    home.mkdir()
    with ModelApi(*(script(turn) for turn in turns if turn.agent in _CLAUDES)) as api:
        yield {**{agent: Claude(agent, api, home) for agent in _CLAUDES}, Replay.agent: Replay()}

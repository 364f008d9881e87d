"""What each version of an agent printed and remembered in a turn of `make test-agents`, and what it was billed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from adapters.contract import Adapter, AgentConfig, Exit, Judgement
from adapters.prices import PriceTable
from adapters.registry import BUILT_IN
from adapters.turn_state import TurnState, fold
from adapters.usage import Tokens, Usage
from tests.support.places import TESTS

_DATA = TESTS / "data"
_CONFIG = AgentConfig(prices=PriceTable.builtin(lambda: date(2026, 11, 22)))


@dataclass(frozen=True)
class Recording:
    """One process of one version."""

    agent: str
    version: str
    scene: str

    def __str__(self) -> str:
        return f"{self.agent}-{self.version}-{self.scene}"

    @property
    def lines(self) -> list[bytes]:
        """What it printed."""
        return self._lines(".jsonl")

    @property
    def session_lines(self) -> list[bytes]:
        """What it added to its session files."""
        return self._lines(".session.jsonl")

    @property
    def bill(self) -> dict[str, Tokens]:
        """What its API billed, by model."""
        return {model: Tokens(*counts) for model, counts in self._truth()["billed"].items()}

    @property
    def exit(self) -> Exit:
        """How it ended."""
        truth = self._truth()
        return Exit(truth["exit_code"], truth["stderr"])

    def _lines(self, suffix: str) -> list[bytes]:
        path = self._path(suffix)
        return path.read_bytes().splitlines() if path.exists() else []

    def _truth(self) -> dict[str, object]:
        return json.loads(self._path(".truth.json").read_bytes())

    def _path(self, suffix: str) -> Path:
        return _DATA / self.agent / "versions" / self.version / f"{self.scene}{suffix}"


@dataclass(frozen=True)
class Judged:
    """A recording as a worker makes of it."""

    state: TurnState
    judgement: Judgement
    usage: Usage

    @property
    def kind(self) -> str:
        """How it ended, in a word."""
        return self.judgement.error.kind if self.judgement.error else "completed"


def recordings() -> list[Recording]:
    """All there are."""
    paths = sorted(_DATA.glob("*/versions/*/*.truth.json"))
    return [
        Recording(path.parents[2].name, path.parent.name, path.name.removesuffix(".truth.json")) for path in paths
    ]


@cache
def adapter(agent: str) -> Adapter:
    """The agent's, as a worker has it."""
    return next(entry for entry in BUILT_IN if entry.name == agent).load()(_CONFIG)


def judged(recording: Recording) -> Judged:
    """Read a recording as a worker does, its session files where the judgement asks for them."""
    agent = adapter(recording.agent)
    state = TurnState(expects_output=recording.scene == "schema", resumed=recording.scene == "resume")
    fold(agent.parser(), state, recording.lines)
    judgement = agent.judgement(state, recording.exit)
    if not judgement.read_session_files:
        return Judged(state, judgement, judgement.usage)
    main = judgement.next_files is None or judgement.next_files(()) is not None
    exact = agent.session_usage(recording.session_lines if main else (), state)
    return Judged(state, judgement, judgement.usage_with(exact))

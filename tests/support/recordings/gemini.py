"""The recordings of the Gemini CLI 0.61.0, and what an API that kept the bill says about each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from functools import cache

from adapters.contract import AgentConfig, Exit, Judgement
from adapters.events import Event
from adapters.gemini.adapter import Gemini
from adapters.prices import PriceTable
from adapters.turn_state import TurnState, fold
from adapters.usage import Tokens
from tests.support.places import TESTS

DATA = TESTS / "data" / "gemini"
PRICES = PriceTable.builtin(lambda: date(2026, 11, 22))


@dataclass(frozen=True)
class Recording:
    """What one process printed, how it ended and what the API billed for it."""

    name: str
    lines: tuple[bytes, ...]
    exit: Exit
    bill: dict[str, Tokens]  # by model
    session_lines: tuple[bytes, ...] = ()  # what it added to its session files


@dataclass(frozen=True)
class Folded:
    """A recording, folded and judged; the session files are read if the judgement asks for it."""

    state: TurnState
    events: list[Event]
    judgement: Judgement

    @property
    def kind(self) -> str:
        return self.judgement.error.kind if self.judgement.error else "completed"


def agent() -> Gemini:
    """The adapter as a worker has it."""
    return Gemini(AgentConfig(prices=PRICES))


def folded(recording: Recording) -> Folded:
    """Read a recording as a worker does, and judge."""
    adapter, state = agent(), TurnState()
    events = fold(adapter.parser(), state, recording.lines)
    return Folded(state, events, adapter.judgement(state, recording.exit))


@cache
def load(name: str) -> Recording:
    """One recording."""
    truth = json.loads((DATA / f"{name}.truth.json").read_bytes())
    session = DATA / f"{name}.session.jsonl"
    return Recording(
        name=name,
        lines=tuple((DATA / f"{name}.jsonl").read_bytes().splitlines()),
        exit=Exit(truth["exit_code"], truth["stderr"]),
        bill=_bill(truth["requests"]),
        session_lines=tuple(session.read_bytes().splitlines()) if session.exists() else (),
    )


def names() -> list[str]:
    """All recordings."""
    return sorted(path.name.removesuffix(".truth.json") for path in DATA.glob("*.truth.json"))


def _bill(requests: list[dict[str, dict[str, int]]]) -> dict[str, Tokens]:
    bill: dict[str, Tokens] = {}
    for request in requests:
        if used := request.get("billed"):
            cached = used["cachedContentTokenCount"]
            output = used["candidatesTokenCount"] + used["thoughtsTokenCount"]
            read = used["promptTokenCount"] + used.get("toolUsePromptTokenCount", 0)
            tokens = Tokens(read - cached, output, cached)
            model = str(request["model"])
            bill[model] = bill.get(model, Tokens()) + tokens
    return bill

"""The recordings of Claude Code, and what an API that kept the bill says about each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from adapters.claude_code.adapter import ClaudeCode
from adapters.contract import Exit, Judgement
from adapters.events import Event
from adapters.turn_state import TurnState, fold
from adapters.usage import Tokens, Usage
from tests.support.places import TESTS

DATA = TESTS / "data" / "claude-code"
VERSIONS = ("2.1.197", "2.1.330")  # whose recordings have their session files


@dataclass(frozen=True)
class Folded:
    """A recording, folded and judged."""

    state: TurnState
    events: list[Event]
    judgement: Judgement

    @property
    def kind(self) -> str:
        return self.judgement.error.kind if self.judgement.error else "completed"

    @property
    def usage(self) -> Usage:
        return self.judgement.usage


@dataclass(frozen=True)
class Recording:
    """What one process printed, how it ended and what the API billed for it."""

    name: str
    lines: tuple[bytes, ...]
    exit: Exit
    bill: dict[str, Tokens]  # by model
    session_lines: tuple[bytes, ...] = ()  # the assistant records that it added to its session files

    def folded(self) -> Folded:
        return folded(self.lines, self.exit)


def folded(lines: tuple[bytes, ...] | list[bytes], end: Exit) -> Folded:
    """Read lines as a worker does, and judge."""
    agent, state = ClaudeCode(), TurnState()
    events = fold(agent.parser(), state, lines)
    return Folded(state, events, agent.judgement(state, end))


@cache
def load(name: str) -> Recording:
    """One recording; NAME, or VERSION/NAME for those that have their session files."""
    path = DATA / name
    truth = json.loads(path.with_name(f"{path.name}.truth.json").read_bytes())
    session = path.with_name(f"{path.name}.session.jsonl")
    return Recording(
        name=name,
        lines=tuple(path.with_name(f"{path.name}.jsonl").read_bytes().splitlines()),
        exit=Exit(truth["exit_code"], truth["stderr"]),
        bill=_bill(truth["requests"]),
        session_lines=tuple(session.read_bytes().splitlines()) if session.exists() else (),
    )


def names(version: str = "") -> list[str]:
    """The recordings that have a bill."""
    return sorted(path.name.removesuffix(".truth.json") for path in (DATA / version).glob("*.truth.json"))


def decoded(name: str) -> list[dict[str, object]]:
    """A recording's lines as objects, to derive others from."""
    return [json.loads(line) for line in load(name).lines]


def encoded(records: list[dict[str, object]]) -> list[bytes]:
    """Objects as the lines that Claude Code prints: compact, one object a line."""
    return [json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() for record in records]


def _bill(requests: list[dict[str, dict[str, object]]]) -> dict[str, Tokens]:
    bill: dict[str, Tokens] = {}
    for request in requests:
        if billed := request.get("billed"):
            counts = (billed[kind] for kind in ("input", "output", "cache_read", "cache_creation"))
            tokens = Tokens(*(int(str(count)) for count in counts))
            model = str(billed["model"])
            bill[model] = bill[model] + tokens if model in bill else tokens
    return bill

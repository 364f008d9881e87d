"""The recordings of Codex, and what an API that kept the bill says about each."""

from __future__ import annotations

import json
import re
from datetime import date
from functools import cache

from adapters.codex.adapter import Codex
from adapters.contract import AgentConfig, Exit, Judgement
from adapters.events import Event
from adapters.prices import PriceTable
from adapters.turn_state import TurnState, fold
from adapters.usage import NO_TOKENS, Tokens
from tests.support.places import TESTS

DATA = TESTS / "data" / "codex"
PRICES = PriceTable.builtin(lambda: date(2026, 11, 22))
CODEX = Codex(AgentConfig(prices=PRICES))


def names() -> list[str]:
    """All recordings."""
    return sorted(path.name.removesuffix(".rc") for path in DATA.glob("*.rc"))


def billed_names() -> list[str]:
    """Those that have a bill."""
    return sorted(path.name.removesuffix(".billed.jsonl") for path in DATA.glob("*.billed.jsonl"))


@cache
def lines(name: str) -> tuple[bytes, ...]:
    """What was printed, or another part of a recording."""
    return tuple((DATA / f"{name}.jsonl").read_bytes().splitlines())


def exit_of(name: str) -> Exit:
    """How the process ended."""
    code = re.search(r"rc=(-?\d+)", (DATA / f"{name}.rc").read_text())
    stderr = DATA / f"{name}.stderr"
    return Exit(int(code[1]) if code else None, stderr.read_text() if stderr.exists() else "")


def folded(name: str, *, resumed: bool = False) -> tuple[TurnState, list[Event], Judgement]:
    """Read a recording as a worker does, and judge."""
    state = TurnState(resumed=resumed)
    events = fold(CODEX.parser(), state, lines(name))
    return state, events, CODEX.judgement(state, exit_of(name))


def bill(name: str) -> Tokens:
    """What the API billed, in four disjoint kinds."""
    return sum(map(_billed, lines(f"{name}.billed")), NO_TOKENS)


def _billed(line: bytes) -> Tokens:
    usage = json.loads(line).get("billed")
    if not usage:
        return NO_TOKENS
    cached = usage["input_tokens_details"]["cached_tokens"]
    return Tokens(usage["input_tokens"] - cached, usage["output_tokens"], cached)

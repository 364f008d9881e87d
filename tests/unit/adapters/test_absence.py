"""What an agent does not say is no evidence: a success that tells less stays one, and is never booked at more.

Any key of any record may be missing, but for the few without which no success is reported at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.claude_code.adapter import ClaudeCode
from adapters.claude_sdk.adapter import ClaudeSdk
from adapters.contract import Adapter, Exit
from adapters.replay_agent import ReplayAgent
from adapters.turn_state import TurnState, fold
from adapters.usage import Usage
from tests.support.recordings import claude_code as recordings
from tests.support.recordings import codex as codex_recordings
from tests.support.recordings import gemini as gemini_recordings

Lines = Sequence[bytes]
Place = tuple[str | int, ...]

# Without its type, no line is known to be a result, and without its own word for how it went, none says success.
# An output that was asked for is the answer: without it there is none. The models of an account are what it says,
# and not fields of it.
ESSENTIAL = {
    "result": frozenset({"type", "subtype", "status", "structured_output"}),
    "turn.completed": frozenset({"type"}),
}


ACCOUNTS = ("modelUsage", "model_usage_since_last_result", "models")


@dataclass(frozen=True)
class Success:
    """One recorded success, with what it added to its session files."""

    name: str
    agent: Adapter
    lines: Lines
    files: Lines
    resumed: bool = False

    def judged(self, lines: Lines, files: Lines) -> tuple[str, Usage]:
        """How it ends, and what is booked, as a worker finds out."""
        state = TurnState(resumed=self.resumed)
        fold(self.agent.parser(), state, lines)
        judged = self.agent.judgement(state, Exit(0))
        usage = judged.usage
        if judged.read_session_files:
            usage = judged.usage_with(self.agent.session_usage(files, state))
        return judged.error.kind if judged.error else "completed", usage


def claude() -> Iterator[Success]:
    """Those of the command line."""
    names = [*recordings.names(), *(f"{v}/{n}" for v in recordings.VERSIONS for n in recordings.names(v))]
    names += [f"subagents/{name}" for name in recordings.names("subagents")]
    for name in names:
        recording = recordings.load(name)
        resumed = "resume" in name
        yield Success(f"claude-code/{name}", ClaudeCode(), recording.lines, recording.session_lines, resumed)


def claude_sdk() -> Iterator[Success]:
    """The wires of live turns."""
    for path in sorted(recordings.DATA.glob("*wire*.jsonl")):
        frames = [json.loads(line) for line in path.read_bytes().splitlines()]
        printed = [frame["frame"] for frame in frames if frame["dir"] == "from_cli"]
        yield Success(f"claude-sdk/{path.stem}", ClaudeSdk(), tuple(recordings.encoded(printed)), ())


def codex() -> Iterator[Success]:
    """With the rollout, where there is one."""
    for name in codex_recordings.names():
        rollout = codex_recordings.DATA / f"{name}.rollout.jsonl"
        files = codex_recordings.lines(f"{name}.rollout") if rollout.exists() else ()
        resumed = "resume" in name
        yield Success(f"codex/{name}", codex_recordings.CODEX, codex_recordings.lines(name), files, resumed)


def gemini() -> Iterator[Success]:
    """With the session files."""
    for name in gemini_recordings.names():
        recording = gemini_recordings.load(name)
        yield Success(f"gemini/{name}", gemini_recordings.agent(), recording.lines, recording.session_lines)


def scripted() -> Iterator[Success]:
    """A replay."""
    lines = recordings.load("b_agentic_steps").lines
    yield Success("scripted/b_agentic_steps", ReplayAgent(ClaudeCode()), lines, ())


@cache
def successes() -> tuple[Success, ...]:
    """All of them."""
    sources: tuple[Callable[[], Iterable[Success]], ...] = (claude, claude_sdk, codex, gemini, scripted)
    found = (success for source in sources for success in source())
    return tuple(each for each in found if each.judged(each.lines, each.files)[0] == "completed")


@cache
def places(line: bytes) -> tuple[Place, ...]:
    """Where the optional keys of a record are, at any depth."""
    record = json.loads(line)
    essential = ESSENTIAL.get(str(record.get("type")), frozenset({"type"})) if isinstance(record, dict) else ()
    return tuple(place for place in _places(record) if not (len(place) == 1 and place[0] in essential))


def _places(value: Any, at: Place = ()) -> Iterator[Place]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        if isinstance(value, dict) and not (at and at[-1] in ACCOUNTS):
            yield (*at, key)
        yield from _places(each, (*at, key))


def without(line: bytes, dropped: Iterable[Place]) -> bytes:
    """The line with these keys left out."""
    record = json.loads(line)
    for place in dropped:
        inner = record
        try:
            for key in place[:-1]:
                inner = inner[key]
            del inner[place[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # what it was in has gone before
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def changed(lines: Lines, index: int, dropped: Iterable[Place]) -> Lines:
    """The lines with these keys of one of them left out."""
    return [*lines[:index], without(lines[index], dropped), *lines[index + 1 :]]


def assert_still_a_success(success: Success, lines: Lines, files: Lines) -> None:
    kind, usage = success.judged(lines, files)
    _, whole = success.judged(success.lines, success.files)
    assert kind == "completed", success.name
    assert usage.tokens.total <= whole.tokens.total, (success.name, usage, whole)
    if usage.tokens.total < whole.tokens.total:
        assert not usage.complete, (success.name, usage, whole)


@pytest.mark.parametrize("agent", ["claude-code", "claude-sdk", "codex", "gemini", "scripted"])
def test_there_are_successes_of_every_agent(agent: str) -> None:
    assert any(success.name.startswith(f"{agent}/") for success in successes())


@pytest.mark.parametrize("success", successes(), ids=lambda success: success.name)
def test_success_whose_last_word_tells_less_stays_a_success(success: Success) -> None:
    """Every single key of the last record, and all of them together."""
    last = len(success.lines) - 1
    keys = places(success.lines[last])
    for dropped in (*((key,) for key in keys), keys):
        assert_still_a_success(success, changed(success.lines, last, dropped), success.files)


@given(st.data())
def test_success_whose_records_tell_less_stays_a_success(data: st.DataObject) -> None:
    success = data.draw(st.sampled_from(successes()))
    lines, files = success.lines, success.files
    for _ in range(data.draw(st.integers(1, 3))):
        in_files = bool(files) and data.draw(st.booleans())
        records = files if in_files else lines
        index = data.draw(st.integers(0, len(records) - 1))
        if not records[index].startswith(b"{") or not (keys := places(records[index])):
            continue
        dropped = data.draw(st.one_of(st.just(keys), st.lists(st.sampled_from(keys), min_size=1, max_size=3)))
        if in_files:
            files = changed(files, index, dropped)
        else:
            lines = changed(lines, index, dropped)
    assert_still_a_success(success, lines, files)

"""Nothing that the Gemini CLI prints or writes down can raise, and the same lines give the same events."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters import events as ev
from adapters.contract import Exit
from adapters.protocol.result import totals
from adapters.turn_state import TurnState, fold
from tests.support.recordings.gemini import agent, load, names

LINES = sorted({line for name in names() for line in (*load(name).lines, *load(name).session_lines)})
WHOLE = [load(name).lines for name in ("tools", "approval-default", "auth", "killed-tool")]
SCALARS = [None, True, False, 0, -1, 2**63, 10**30, 1.5, -0.0, 1e308, "", "x", "\x00", "é😀", "\ud83d", "gemini"]
SHAPES = [[], [[]], ["text"], {}, {"type": "text"}, {"a": {"input_tokens": "1"}}, [{"name": []}]]
ODD = st.sampled_from([*SCALARS, *SHAPES]).map(copy.deepcopy)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A printed line with some places dropped or replaced."""
    record = json.loads(draw(st.sampled_from(LINES)))
    for _ in range(draw(st.integers(1, 4))):
        _mutate(draw, record)
    return json.dumps(record, separators=(",", ":"), ensure_ascii=draw(st.booleans())).encode(errors="replace")


def _mutate(draw: st.DrawFn, record: Any) -> None:
    while True:
        places = list(record) if isinstance(record, dict) else list(range(len(record)))
        if not places:
            return
        place = draw(st.sampled_from(places))
        inner = record[place]
        if not (isinstance(inner, dict | list) and inner and draw(st.booleans())):
            break
        record = inner
    if draw(st.booleans()):
        record[place] = draw(ODD)
    else:
        del record[place]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A printed line that was cut, or lost some bytes to others."""
    line = bytearray(draw(st.sampled_from(LINES)))
    start = draw(st.integers(0, len(line)))
    if draw(st.booleans()):
        del line[start:]
    else:
        line[start : start + draw(st.integers(0, 40))] = draw(st.binary(max_size=12))
    return bytes(line)


NESTED = b'{"type":"tool_use","tool_id":"a","tool_name":"b","parameters":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
INFINITE = b'{"type":"result","status":"success","stats":{"duration_ms":1e999}}'


@given(st.lists(st.one_of(mutated(), damaged(), st.binary(max_size=200)), max_size=12), st.sampled_from(WHOLE))
@example([NESTED], WHOLE[0])
@example([INFINITE], WHOLE[0])
def test_whatever_is_printed_or_written_is_read_judged_and_booked(
    bad: list[bytes], good: tuple[bytes, ...]
) -> None:
    adapter, state = agent(), TurnState()
    events = fold(adapter.parser(), state, [*good[: len(good) // 2], *bad, *good[len(good) // 2 :], *bad])
    for end in (Exit(0), Exit(1, "why"), Exit(145), Exit(-9), Exit(None)):
        totals(adapter.judgement(state, end).usage).model_dump_json()
    for reader in (state, TurnState()):
        totals(adapter.session_usage([*good, *bad], reader)).model_dump_json()
    for event in events:
        if event is not ev.HEARTBEAT:
            orjson.dumps(event)
            assert not isinstance(event, ev.Malformed) or len(event.text) <= 500


@given(st.sampled_from(names()), st.integers(0, 2**32))
def test_events_are_the_same_however_the_lines_arrive(name: str, seed: int) -> None:
    lines, chance = load(name).lines, random.Random(seed)
    parser, state, events, start = agent().parser(), TurnState(), [], 0
    while start < len(lines):
        end = start + chance.randint(1, 7)
        events += fold(parser, state, lines[start:end])
        start = end
    assert fold(agent().parser(), TurnState(), lines) == events


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"not JSON", "malformed"),
        (b"[]", "malformed"),
        (b'{"type":"init"}', "malformed"),
        (b'{"type":"message","role":"assistant"}', "malformed"),
        (b'{"type":"result","status":"success","stats":{"models":{"m":{"total_tokens":-1}}}}', "turn_completed"),
        (b'{"type":"something_new","x":1}', "answer_begun"),  # or may have
        (b'{"type":"error","severity":"warning","message":"Loop detected"}', "notification"),
        (b"", "heartbeat"),
    ],
)
def test_odd_line(line: bytes, name: str) -> None:
    assert [event.name for event in agent().parser().feed(line, None)] == [name]


def test_text_that_was_cut_within_a_character_is_read() -> None:
    parser = agent().parser()

    parser.feed(rb'{"type":"message","role":"assistant","content":"cut \ud83d"}', None)

    assert parser.feed(rb'{"type":"init","session_id":"s"}', None)[0] == ev.AssistantText("cut ?")

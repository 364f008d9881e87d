"""Nothing that an agent prints can raise, and the same lines give the same events however they arrive."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from adapters import events as ev
from adapters.claude_code.adapter import ClaudeCode
from adapters.claude_code.judge import judge
from adapters.claude_code.parser import ClaudeCodeParser
from adapters.claude_code.session_files import read_usage
from adapters.contract import Exit
from adapters.events import HEARTBEAT, Event
from adapters.protocol.result import totals
from adapters.turn_state import TurnState, fold
from tests.support.recordings.claude_code import VERSIONS, load, names

RECORDINGS = [*names(), *(f"{version}/{name}" for version in VERSIONS for name in names(version))]
LINES = sorted({line for name in RECORDINGS for line in load(name).lines if len(line) < 20_000})
WHOLE = [load(name).lines for name in ("m3_partial_subagent", "b_agentic_steps", "2.1.330/c5_two_subagents")]

SCALARS = [None, True, False, 0, -1, 2**63, 10**30, 1.5, -0.0, 1e308, "", "x", "\x00", "é😀", "\ud83d"]
SHAPES = [[], [[]], ["text"], {}, {"type": "text"}, [{"type": "tool_use"}], [{"type": []}], {"input_tokens": "1"}]
ODD = st.sampled_from([*SCALARS, *SHAPES]).map(copy.deepcopy)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A printed line with some fields dropped, replaced or renamed."""
    record = json.loads(draw(st.sampled_from(LINES)))
    for _ in range(draw(st.integers(1, 4))):
        _mutate(draw, record)
    return json.dumps(record, separators=(",", ":"), ensure_ascii=draw(st.booleans())).encode(errors="replace")


def _mutate(draw: st.DrawFn, record: Any) -> None:
    """Change one place, at a random depth."""
    while True:
        places = list(record) if isinstance(record, dict) else list(range(len(record)))
        if not places:
            return
        place = draw(st.sampled_from(places))
        inner = record[place]
        if not (isinstance(inner, dict | list) and inner and draw(st.booleans())):
            break
        record = inner
    match draw(st.sampled_from(["drop", "replace", "wrap"])):
        case "drop":
            del record[place]
        case "replace":
            record[place] = draw(ODD)
        case "wrap":
            record[place] = draw(st.sampled_from([[inner], {"type": inner}, str(inner)]))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A printed line that was cut, or lost some bytes to others."""
    line = bytearray(draw(st.sampled_from(LINES)))
    start = draw(st.integers(0, len(line)))
    match draw(st.sampled_from(["cut", "drop", "insert"])):
        case "cut":
            del line[start:]
        case "drop":
            del line[start : start + draw(st.integers(1, 40))]
        case "insert":
            line[start:start] = draw(st.binary(min_size=1, max_size=12))
    return bytes(line)


NESTED = b'{"type":"assistant","message":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
DEEP_TEXT = b'{"type":"system","subtype":"status","status":' + b"[" * 1000 + b"]" * 1000 + b"}"
NESTED_SURROGATE = b'{"a":"\\ud83d","b":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NOT_A_NUMBER = b'{"type":"result","subtype":"success","num_turns":NaN}'
HUGE = b'{"type":"result","subtype":"success","num_turns":1e308,"duration_ms":123456789012345678901234567890}'
INFINITE = b'{"type":"system","subtype":"api_retry","attempt":1,"max_retries":1,"retry_delay_ms":1e999}'


@given(st.lists(st.one_of(mutated(), damaged(), st.binary(max_size=200)), max_size=12), st.sampled_from(WHOLE))
@example([NESTED], WHOLE[0])
@example([DEEP_TEXT], WHOLE[0])
@example([NESTED_SURROGATE], WHOLE[0])
@example([NOT_A_NUMBER], WHOLE[0])
@example([HUGE], WHOLE[0])
@example([INFINITE], WHOLE[0])
def test_whatever_is_printed_is_read_judged_and_booked(bad: list[bytes], good: tuple[bytes, ...]) -> None:
    state = TurnState()
    events = fold(ClaudeCodeParser(), state, [*good[: len(good) // 2], *bad, *good[len(good) // 2 :], *bad])

    for end in (Exit(0), Exit(1, "why"), Exit(-9), Exit(None)):
        judgement = judge(state, end)
        totals(judgement.usage).model_dump_json()
    assert all(_is_published(event) for event in events if event is not HEARTBEAT)


def _is_published(event: Event) -> bool:
    """As JSON, events go to watchers."""
    orjson.dumps(event)
    return not isinstance(event, ev.Malformed) or len(event.text) <= 500


@given(st.lists(st.one_of(mutated(), damaged()), max_size=20))
def test_whatever_stands_in_a_session_file_is_read(lines: list[bytes]) -> None:
    usage = read_usage(lines, TurnState())

    totals(usage).model_dump_json()


@given(st.sampled_from(RECORDINGS), st.integers(0, 2**32))
def test_events_are_the_same_however_the_lines_arrive(name: str, seed: int) -> None:
    lines, chance = load(name).lines, random.Random(seed)
    parser, state, events, start = ClaudeCodeParser(), TurnState(), [], 0
    while start < len(lines):
        end = start + chance.randint(1, 7)
        events += fold(parser, state, lines[start:end])
        start = end

    again = TurnState()
    assert fold(ClaudeCodeParser(), again, lines) == events
    assert judge(again, Exit(0)).usage == judge(state, Exit(0)).usage


@given(st.sampled_from(RECORDINGS), st.integers(0, 40))
def test_numbers_of_events_do_not_depend_on_what_was_seen_live(name: str, replayed: int) -> None:
    """A worker that takes over reads the first lines again, without their times."""
    lines = load(name).lines
    live = _names(lines, 0)

    assert _names(lines, replayed) == live


def _names(lines: tuple[bytes, ...], replayed: int) -> list[str]:
    parser, state = ClaudeCodeParser(), TurnState()
    events = fold(parser, state, lines[:replayed])
    for number, line in enumerate(lines[replayed:]):
        events += fold(parser, state, [line], at=float(number))
    return [event.name for event in events]


def test_parsers_share_nothing() -> None:
    agent = ClaudeCode()
    lines = load("b_agentic_steps").lines

    first = fold(agent.parser(), TurnState(), lines)

    assert fold(agent.parser(), TurnState(), lines) == first

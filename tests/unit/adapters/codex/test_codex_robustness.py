"""Nothing that Codex prints or writes down can raise."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from adapters.codex.faults import fault
from adapters.codex.rollout import next_files
from adapters.contract import Exit
from adapters.events import HEARTBEAT, SessionStarted
from adapters.protocol.result import totals
from adapters.turn_state import TurnState, fold
from tests.support.recordings.codex import CODEX, lines, names
from tests.unit.adapters.claude.test_robustness import NESTED, _is_published, _mutate

PRINTED = sorted({line for name in names() for line in lines(name)})
ROLLOUTS = (
    "tool",
    "resumed",
    "subagent",
    "subagent.child",
    "interrupted",
    "forked-0.128.0.child",
    "forked-0.150.1",
)
WRITTEN = sorted({line for name in ROLLOUTS for line in lines(f"{name}.rollout")})


@st.composite
def damaged(draw: st.DrawFn, source: list[bytes]) -> bytes:
    """A line with some fields dropped, replaced or renamed, or cut, or no line of Codex at all."""
    line = draw(st.sampled_from(source))
    match draw(st.sampled_from(["mutate", "cut", "noise"])):
        case "mutate":
            record = json.loads(line)
            for _ in range(draw(st.integers(1, 4))):
                _mutate(draw, record)
            return json.dumps(record, ensure_ascii=draw(st.booleans())).encode(errors="replace")
        case "cut":
            return line[: draw(st.integers(0, len(line)))]
        case _:
            return draw(st.binary(max_size=200))


@given(st.lists(damaged(PRINTED), max_size=12))
@example([NESTED])
@example([b'{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":2,"output_tokens":-1}}'])
@example([b'{"type":"item.completed","item":{"type":["x"],"id":1}}'])
@example([b'{"type":"thread.started","thread_id":"../../x"}'])
def test_whatever_is_printed_is_read_and_judged(bad: list[bytes]) -> None:
    good = lines("items-mcp")
    state = TurnState()
    events = fold(CODEX.parser(), state, [*good[:4], *bad, *good[4:], *bad])
    for end in (Exit(0), Exit(1, "why"), Exit(-9), Exit(None)):
        totals(CODEX.judgement(state, end).usage).model_dump_json()
    assert all(_is_published(event) for event in events if event is not HEARTBEAT)


@given(st.lists(damaged(WRITTEN), max_size=12))
@example([b'{"type":"token_usage_record","payload":[]}'])
@example([NESTED.replace(b"assistant", b"token_usage_record")])
def test_whatever_is_written_down_is_read(bad: list[bytes]) -> None:
    state = TurnState()
    state.apply([SessionStarted("thread")])
    records = [*lines("tool.rollout"), *bad]
    totals(CODEX.session_usage(records, state)).model_dump_json()
    next_files(state)(records)


@given(st.text())
def test_whatever_it_says_is_some_fault(text: str) -> None:
    assert fault(text).kind

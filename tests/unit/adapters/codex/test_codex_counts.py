"""Rollouts of older Codexes, which only count what a thread has used: each answer is booked, and none twice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.codex.rollout import next_files, session_files
from adapters.contract import Exit
from adapters.events import SessionStarted
from adapters.turn_state import TurnState, fold
from adapters.usage import Tokens, Usage
from tests.support.recordings.codex import CODEX, folded, lines
from tests.support.recordings.versions import Recording, judged, recordings

COUNTING = ("0.128.0", "0.140.0", "0.150.1")
TELLING_KINDS = ("0.150.1",)  # the others have what was written to the cache among their input
SCENES = ("success", "resume", "schema", "cancel")
FORKS = {"0.128.0": 1180, "0.140.0": 1555, "0.150.1": 1555}  # what their APIs billed
# Of a thread that has used 50 tokens before.
BEFORE, FIRST, SECOND = (38, 12), (138, 32), (338, 62)


@pytest.mark.parametrize("version", COUNTING)
@pytest.mark.parametrize("scene", SCENES)
def test_attempt_is_booked_with_what_it_was_billed(version: str, scene: str) -> None:
    recording = Recording("codex", version, scene)
    usage = judged(recording).usage
    booked = {model: used.tokens for model, used in usage.by_model.items()}

    assert usage.complete is (version in TELLING_KINDS)
    assert {model: used.total for model, used in booked.items()} == {
        model: tokens.total for model, tokens in recording.bill.items()
    }
    assert (booked == recording.bill) is (version in TELLING_KINDS)


def test_tool_that_the_stream_had_no_time_to_tell_of_leaves_the_bill_whole() -> None:
    recording = Recording("codex", "0.169.0", "cancel")
    told = judged(recording)
    assert not told.state.tools
    assert {model: used.tokens for model, used in told.usage.by_model.items()} == recording.bill
    assert told.usage.complete


@pytest.mark.parametrize("version", COUNTING)
def test_answer_that_broke_off_leaves_the_rest_booked_and_marked(version: str) -> None:
    usage = judged(Recording("codex", version, "cut")).usage
    assert (usage.tokens.total, usage.complete) == (9540, False)


@pytest.mark.parametrize("version", COUNTING)
def test_copy_that_a_fork_begins_with_is_its_parents(version: str) -> None:
    name = f"forked-{version}"
    state, _, judgement = folded(name)
    records = [*lines(f"{name}.rollout"), *lines(f"{name}.child.rollout")]
    usage = CODEX.session_usage(records, state)

    assert judgement.error is None
    assert usage.tokens.total == FORKS[version]
    assert usage.complete is (version in TELLING_KINDS)


@pytest.mark.parametrize("version", COUNTING)
def test_subagent_is_named_by_the_call_that_started_it(version: str) -> None:
    name = f"forked-{version}"
    state, _, _ = folded(name)
    child = json.loads(lines(f"{name}.child.rollout")[0])["payload"]["id"]

    assert next_files(state)(lines(f"{name}.rollout")) == session_files(child)
    assert not CODEX.session_usage(lines(f"{name}.rollout"), state).complete


@pytest.mark.parametrize(("call", "key"), [("send_input", "target"), ("send_input", "id"), ("resume_agent", "id")])
def test_subagent_of_an_earlier_turn_that_goes_on_leaves_the_bill_incomplete(call: str, key: str) -> None:
    arguments = json.dumps({key: "helper"})
    goes_on = _record("response_item", type="function_call", name=call, arguments=arguments, call_id="1")
    counted = [_count(BEFORE, BEFORE), _SAID, _count(FIRST, (100, 20))]
    asked = [*counted[:2], goes_on, *counted[2:]]
    helped = [_SAID, _count((4000, 300), (500, 40))]  # its rollout has no first line in what was added to it
    done = [json.dumps({"type": "turn.completed", "usage": _told(FIRST)}).encode()]

    assert _usage(counted, printed=done).complete
    assert next_files(_STATE)(asked) == session_files("helper")
    for records in (asked, asked + helped):
        usage = _usage(records, printed=done)
        assert (usage.tokens.total, usage.complete) == (120, False)


@given(data=st.data())
def test_lines_that_are_missing_never_make_more_of_it(data: st.DataObject) -> None:
    recording = data.draw(st.sampled_from([each for each in recordings() if each.agent == "codex"]))
    records = recording.session_lines
    kept = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    usage = CODEX.session_usage(
        [line for line, keep in zip(records, kept, strict=True) if keep], _state(recording)
    )

    assert usage.tokens.total <= sum(tokens.total for tokens in recording.bill.values())


def test_first_count_of_a_resumed_thread_is_an_earlier_ones_until_the_model_has_spoken() -> None:
    assert _booked([_count(BEFORE, BEFORE), _SAID, _count(FIRST, (100, 20))]) == 120
    assert _booked([_SAID, _count(FIRST, (100, 20)), _count(SECOND, (200, 30))]) == 350
    assert _booked([_count(FIRST, (100, 20)), _SAID, _count(SECOND, (200, 30))]) == 230


def test_half_an_answer_is_not_taken_for_the_last_one_of_an_earlier_process() -> None:
    tried_again = b'{"type":"error","message":"Reconnecting... 1/5 (stream disconnected before completion)"}'
    usage = _usage([_SAID, _count(BEFORE, BEFORE), _SAID, _count(FIRST, (100, 20))], printed=[tried_again])
    assert (usage.tokens.total, usage.complete) == (120, False)


def test_count_that_fits_nothing_before_is_no_answer() -> None:
    began = _record("session_meta", id="thread")
    usage = _usage([began, _SAID, _count(FIRST, (100, 20)), _count(SECOND, (200, 30))], resumed=False)
    assert (usage.tokens.total, usage.complete) == (230, False)


@pytest.mark.parametrize(("used", "complete"), [(SECOND, True), (FIRST, False)])
def test_success_is_whole_if_the_agent_counts_the_same(used: tuple[int, int], complete: bool) -> None:
    done = {"type": "turn.completed", "usage": _told(used)}
    records = [_count(BEFORE, BEFORE), _SAID, _count(FIRST, (100, 20)), _SAID, _count(SECOND, (200, 30))]
    usage = _usage(records, printed=[json.dumps(done).encode()])
    assert (usage.tokens, usage.complete) == (Tokens(300, 50), complete)


def test_answer_under_way_when_the_agent_was_killed_leaves_the_bill_incomplete() -> None:
    call = _record("response_item", type="function_call", name="shell", call_id="1")
    result = _record("response_item", type="function_call_output", call_id="1", output="done")
    counted = [_count(BEFORE, BEFORE), call, _count(FIRST, (100, 20))]  # as 0.128.0 does

    assert _usage(counted).complete
    assert not _usage([*counted, result]).complete
    assert not _usage([_count(BEFORE, BEFORE), call, result, _count(FIRST, (100, 20))]).complete
    assert not _usage([*counted, result, call]).complete


def test_stream_that_ends_in_its_middle_fails_a_turn_whose_books_are_short() -> None:
    broken = {"type": "turn.failed", "error": {"message": "stream disconnected before completion: closed"}}
    usage = _usage([_SAID, _count(BEFORE, BEFORE)], printed=[json.dumps(broken).encode()])
    assert (usage.tokens.total, usage.complete) == (0, False)


def _state(recording: Recording) -> TurnState:
    state = TurnState(resumed=recording.scene == "resume")
    fold(CODEX.parser(), state, recording.lines)
    return state


def _booked(records: list[bytes]) -> int:
    return _usage(records).tokens.total


def _usage(records: list[bytes], printed: list[bytes] | None = None, *, resumed: bool = True) -> Usage:
    """What is made of a turn that has added these records to its thread's rollout."""
    state = TurnState(resumed=resumed)
    state.apply([SessionStarted("thread")])
    fold(CODEX.parser(), state, printed or [])
    assert CODEX.judgement(state, Exit(0)).read_session_files
    begun = [
        _record("event_msg", type="task_started", turn_id="turn"),
        _record("turn_context", turn_id="turn", model="m"),
    ]
    return CODEX.session_usage([*begun, *records], state)


def _count(total: tuple[int, int], last: tuple[int, int]) -> bytes:
    """What the thread has used, and its last answer: input, and output."""
    info = {"total_token_usage": _told(total), "last_token_usage": _told(last)}
    return _record("event_msg", type="token_count", info=info)


def _told(used: tuple[int, int]) -> dict[str, int]:
    return {"input_tokens": used[0], "output_tokens": used[1], "cache_write_input_tokens": 0}


def _record(kind: str, **payload: object) -> bytes:
    return json.dumps({"type": kind, "payload": payload}, separators=(",", ":")).encode()


_STATE = TurnState()
_STATE.apply([SessionStarted("thread")])
_SAID = _record("response_item", type="message", role="assistant")

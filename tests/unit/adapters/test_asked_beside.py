"""What agents ask models beside the conversation is booked, or the books are marked: see tests/data/README.md."""

from __future__ import annotations

import json

import pytest

from adapters.turn_state import TurnState, fold
from adapters.usage import Usage
from tests.support.recordings.codex import CODEX
from tests.support.recordings.gemini import agent, folded, load
from tests.support.recordings.versions import Recording, adapter, judged

GEMINI = ("0.41.0", "0.45.2", "0.52.0", "0.61.0")
COUNTING = ("0.128.0", "0.140.0", "0.150.1")  # Codex, as long as its rollouts have no bill an answer
ANSWER = b'"type":"gemini"'


# -- Gemini


@pytest.mark.parametrize("version", GEMINI)
def test_result_has_all_that_gemini_asked_beside(version: str) -> None:
    recording = Recording("gemini", version, "beside")
    usage = judged(recording).usage

    assert len(recording.bill) > 1
    assert ({model: used.tokens for model, used in usage.by_model.items()}, usage.complete) == (
        recording.bill,
        True,
    )


@pytest.mark.parametrize("version", GEMINI)
def test_chat_that_begins_anew_tells_of_the_summary_that_a_killed_turn_has_paid(version: str) -> None:
    recording = Recording("gemini", version, "kill-beside")
    told, records = judged(recording), recording.session_lines
    begins = [n for n, line in enumerate(records) if b'{"$set":{"sessionId"' in line]
    answered = next(n for n, line in enumerate(records) if ANSWER in line)

    assert begins[0] < answered < begins[-1]
    assert 0 < told.usage.tokens.total < sum(tokens.total for tokens in recording.bill.values())
    assert not told.usage.complete
    assert agent().session_usage(records[: begins[-1]], told.state).complete


@pytest.mark.parametrize(
    "text", ["Please continue.", "System: Please continue.", "System: Potential loop detected. Details: x"]
)
def test_killed_turn_that_was_told_to_go_on_has_asked_more(text: str) -> None:
    told = json.dumps({"type": "user", "id": "1", "content": [{"text": text}]}).encode()
    assert _killed().complete
    assert not _killed(before=(told,)).complete


def test_killed_turn_whose_conversation_was_long_may_have_asked_for_a_summary() -> None:
    assert _killed(b'"input":1500', b'"input":524287').complete
    assert not _killed(b'"input":1500', b'"input":524288').complete


def test_killed_turn_that_went_on_may_have_paid_for_a_summary_first() -> None:
    goes_on = b'{"$set":{"sessionId":"x"}}'
    assert _killed(before=(goes_on,)).complete
    assert not _killed(before=(goes_on, goes_on)).complete


@pytest.mark.parametrize(("more", "whole"), [(27, True), (28, False)])
def test_killed_turn_of_many_answers_may_have_asked_whether_they_are_a_loop(more: int, whole: bool) -> None:
    answer = next(line for line in load("killed-tool").session_lines if ANSWER in line)
    number = json.loads(answer)["id"].encode()
    answers = tuple(answer.replace(number, b"answer-%d" % n) for n in range(more))

    assert _killed(before=answers).complete is whole


def _killed(old: bytes = b"", new: bytes = b"", before: tuple[bytes, ...] = ()) -> Usage:
    """What is made of a turn that was killed amid a tool, after these records."""
    recording = load("killed-tool")
    lines = [line.replace(old, new) for line in recording.session_lines]
    return agent().session_usage([*before, *lines], folded(recording).state)


# -- Codex


@pytest.mark.parametrize("version", [*COUNTING, "0.169.0"])
def test_summary_that_the_model_writes_is_an_answer_as_any_other(version: str) -> None:
    recording = Recording("codex", version, "beside")
    usage = judged(recording).usage

    assert {model: used.tokens.total for model, used in usage.by_model.items()} == {
        model: tokens.total for model, tokens in recording.bill.items()
    }
    assert usage.complete is (version in ("0.150.1", "0.169.0"))  # the others do not tell the cache's part


@pytest.mark.parametrize("version", COUNTING)
@pytest.mark.parametrize("scene", ["beside-remote", "kill-beside-remote"])
def test_summary_that_the_api_makes_is_in_no_count_and_marks_the_books(version: str, scene: str) -> None:
    recording = Recording("codex", version, scene)
    usage = judged(recording).usage

    assert usage.tokens.total <= sum(tokens.total for tokens in recording.bill.values()) - 1723
    assert not usage.complete


@pytest.mark.parametrize("scene", ["beside-remote", "kill-beside-remote"])
def test_summary_that_the_api_makes_has_a_bill_in_newer_versions(scene: str) -> None:
    recording = Recording("codex", "0.169.0", scene)
    usage = judged(recording).usage

    assert ({model: used.tokens for model, used in usage.by_model.items()}, usage.complete) == (
        recording.bill,
        True,
    )


@pytest.mark.parametrize("scene", ["beside", "beside-remote"])
def test_answer_without_a_bill_is_missed_also_after_a_summary(scene: str) -> None:
    recording = Recording("codex", "0.169.0", scene)
    records = recording.session_lines
    last = max(n for n, line in enumerate(records) if b'"type":"token_usage_record"' in line)

    assert CODEX.session_usage(records, judged(recording).state).complete
    assert not CODEX.session_usage([*records[:last], *records[last + 1 :]], judged(recording).state).complete


def test_summary_before_the_turn_names_its_model_is_that_models() -> None:
    recording = Recording("codex", "0.150.1", "success")
    context = next(line for line in recording.session_lines if b'"type":"turn_context"' in line)
    others = [line for line in recording.session_lines if line != context]

    usage = CODEX.session_usage([*others, context], judged(recording).state)

    assert {model: used.tokens for model, used in usage.by_model.items()} == recording.bill


def test_memories_under_their_older_name_mark_the_books() -> None:
    """It counts more than the name by which they are turned off; Codex complains of it (0.128.0 to 0.169.0)."""
    recording = Recording("codex", "0.169.0", "success")
    message = "`[features].memory_tool` is deprecated. Use `[features].memories` instead."
    item = {"id": "item_0", "type": "error", "message": message}
    complaint = json.dumps({"type": "item.completed", "item": item}).encode()

    for printed, whole in ((recording.lines, True), ([complaint, *recording.lines], False)):
        state = TurnState()
        fold(CODEX.parser(), state, printed)
        assert CODEX.session_usage(recording.session_lines, state).complete is whole


# -- Claude Code


def test_search_of_a_killed_turn_is_in_no_session_file_and_marks_the_books() -> None:
    recording = Recording("claude-code", "2.1.330", "kill-beside")
    told = judged(recording)
    missing = recording.bill["claude-sonnet-4-5"] - told.usage.tokens
    without = [line.replace(b'"WebSearch"', b'"Bash"') for line in recording.session_lines]

    assert (missing.total, told.usage.complete) == (1723, False)
    assert adapter("claude-code").session_usage(without, told.state).complete


def test_killed_turn_whose_conversation_was_made_shorter_has_paid_for_a_summary() -> None:
    """Its bill stands in the account of the session alone: 2.1.330 asked twice, by `/compact`."""
    recording = Recording("claude-code", "2.1.330", "kill-beside")
    told = judged(recording)
    killed = [line.replace(b'"WebSearch"', b'"Bash"') for line in recording.session_lines]
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}}
    said = {"type": "user", "message": {"role": "user", "content": json.dumps(boundary)}}

    for record, whole in ((boundary, False), (said, True), (["compact_boundary"], True)):
        lines = [*killed, json.dumps(record).encode()]
        assert adapter("claude-code").session_usage(lines, told.state).complete is whole

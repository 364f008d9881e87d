"""Every version is judged by what it did, and its books are the API's bill, or marked as short of it."""

from __future__ import annotations

import json

import pytest

from tests.support.recordings.versions import Recording, judged, recordings

ALL = recordings()
_EXPECTED = {
    "success": {"completed"},
    "resume": {"completed"},
    "schema": {"completed", "port_exit"},  # the oldest do not know the flag
    "refused": {"invalid_request", "turn_failed"},
    "unauthorized": {"authentication_failed", "turn_failed"},  # the oldest tell no status
    "limited": {"rate_limited"},
    "cut": {"completed", "api_unreachable"},  # some ask again by themselves
    "cancel": set(),
    "beside": {"completed"},
    "beside-remote": {"completed"},
    "kill-beside": {"turn_cancelled"},
    "kill-beside-auto": {"turn_cancelled"},
    "kill-beside-remote": {"turn_cancelled"},
}

each = pytest.mark.parametrize("recording", ALL, ids=str)


def test_every_scene_is_recorded_of_some_version() -> None:
    assert {recording.scene for recording in ALL} == _EXPECTED.keys()


@each
def test_recording_is_judged_by_what_the_agent_did(recording: Recording) -> None:
    kind = judged(recording).kind

    if recording.scene == "cancel":
        assert kind != "completed"  # a worker that has asked for the end knows why it came
    else:
        assert kind in _EXPECTED[recording.scene]
    assert not (kind == "port_exit" and recording.scene == "schema" and recording.bill)


@each
def test_books_are_as_billed_or_marked_and_never_more(recording: Recording) -> None:
    usage = judged(recording).usage
    booked = {model: used.tokens.total for model, used in usage.by_model.items()}
    billed = {model: tokens.total for model, tokens in recording.bill.items()}

    if usage.complete:
        assert booked == billed
    assert sum(booked.values()) <= sum(billed.values())


@pytest.mark.parametrize(("version", "told"), [("0.128.0", 0), ("0.140.0", 0), ("0.150.1", 760), ("0.169.0", 760)])
def test_older_codex_has_its_cache_writes_among_its_input(version: str, told: int) -> None:
    recording = Recording("codex", version, "success")
    usage = json.loads(recording.lines[-1])["usage"]
    (billed,) = recording.bill.values()

    assert usage.get("cache_write_input_tokens", 0) == told
    assert usage["input_tokens"] == billed.prompt


@each
def test_no_line_is_malformed(recording: Recording) -> None:
    assert judged(recording).state.malformed == 0

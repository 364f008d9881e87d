"""Subagents whose answers broke off and were asked for again, as Claude Code 2.1.330 ran them."""

from __future__ import annotations

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.usage import Usage, UsageSource
from tests.support.recordings.claude_code import load


def account(name: str, lines: tuple[bytes, ...] | None = None) -> Usage:
    """The usage of a recording once its session files have been read: these lines, or all."""
    recording = load(f"subagents/{name}")
    turn = recording.folded()
    assert turn.judgement.read_session_files
    read = recording.session_lines if lines is None else lines
    return turn.judgement.usage_with(ClaudeCode().session_usage(read, turn.state))


def test_account_is_whole_where_every_request_was_answered() -> None:
    usage = account("whole")
    bill = load("subagents/whole").bill
    assert {model: used.tokens for model, used in usage.by_model.items()} == bill
    assert (usage.source, usage.complete) == (UsageSource.RESULT, True)


@pytest.mark.parametrize("name", ["error", "reset"])
def test_answer_that_broke_off_is_missed(name: str) -> None:
    recording = load(f"subagents/{name}")
    usage = account(name)
    assert (usage.source, usage.complete) == (UsageSource.RESULT, False)
    assert usage.by_model == recording.folded().usage.by_model  # the result's, booked as it is
    assert usage.tokens.prompt < sum(tokens.prompt for tokens in recording.bill.values())


def test_account_is_not_taken_for_whole_where_records_are_missing() -> None:
    lines = load("subagents/whole").session_lines
    subagents = sorted({line.split(b'"agentId":"')[1][:17] for line in lines if b"agentId" in line})
    for records in (
        (),
        tuple(line for line in lines if subagents[0] not in line),  # one file could not be read
        tuple(line for line in lines if b"api-request" not in line or subagents[0] not in line),
        (*lines, b'{"type":"assistant","agentId"'),
    ):
        usage = account("whole", records)
        assert (usage.by_model, usage.complete) == (account("whole").by_model, False)


def test_version_without_records_of_requests_is_believed() -> None:
    lines = load("subagents/error").session_lines
    assert account("error", tuple(line for line in lines if b"api-request" not in line)).complete


def test_refusal_with_a_status_was_not_billed() -> None:
    lines = load("subagents/whole").session_lines
    request = next(line for line in lines if b"api-request" in line and b"agentId" in line)
    agent = request.split(b'"agentId":"')[1][:17]
    refusal = b'{"type":"assistant","agentId":"%s","message":{"id":"x","model":"<synthetic>"},"apiErrorStatus":%s}'
    assert account("whole", (*lines, request, refusal % (agent, b"400"))).complete
    assert not account("whole", (*lines, request, refusal % (agent, b"null"))).complete


def test_turn_without_subagents_is_not_read() -> None:
    judgement = load("2.1.330/a_parallel").folded().judgement
    assert (judgement.read_session_files, judgement.usage.complete) == (False, True)

"""What becomes of a bill when its host cannot be asked for the session files."""

from __future__ import annotations

import asyncio

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.claude_code.session_files import session_files
from adapters.command import Command
from adapters.contract import Exit, Judgement
from adapters.turn_state import TurnState
from adapters.usage import UsageSource
from remote.errors import HostUnreachable
from remote.host import Channel
from remote.local import LocalHost
from remote.spool import Spool
from tests.support.recordings.claude_code import folded, load
from workers.turn.judgement import observe

WHOLE = load("subagents/whole")


class Away(LocalHost):
    """A host that nobody can reach now."""

    async def open_channel(self) -> Channel:
        """See `Host.open_channel`."""
        raise HostUnreachable(self.name, "no route")


def judged(state: TurnState, end: Exit) -> Judgement:
    """What is made of a turn there."""
    command = Command(("claude",), "/ws", session_files=session_files("x"))
    return asyncio.run(observe(ClaudeCode(), state, end, command, Away({}), Spool("/spools", "turn.1")))


def test_turn_that_has_told_its_bill_is_not_lost_and_not_taken_for_whole() -> None:
    judgement = judged(WHOLE.folded().state, WHOLE.exit)
    usage = judgement.usage
    assert judgement.error is None
    assert {model: used.tokens for model, used in usage.by_model.items()} == WHOLE.bill
    assert (usage.source, usage.complete) == (UsageSource.RESULT, False)


def test_turn_that_has_told_no_bill_waits_for_its_host() -> None:
    end = Exit(-9)
    with pytest.raises(HostUnreachable):
        judged(folded(WHOLE.lines[:-1], end).state, end)

"""What the stored events of an attempt restore of it."""

from __future__ import annotations

from adapters.events import Event, SessionStarted, TokenUsage
from adapters.turn_state import Answer, TurnState
from adapters.usage import ModelUsage, Tokens
from workers.events.model import AttemptEnded, AttemptStarted, to_wire
from workers.turn.replay import recall

BEGUN = TokenUsage("m", Tokens(100, 1, 30, 4), answer="msg_1", cost_usd=0.5)
MORE = TokenUsage("m", Tokens(0, 44), output_known=True, answer="msg_1", cost_usd=0.25)


def test_answers_are_restored_by_their_ids() -> None:
    printed: tuple[Event, ...] = (SessionStarted("s1"), BEGUN, MORE)
    stored = [AttemptStarted(1, "claude-code", "h1"), *printed, AttemptEnded(1, "host_lost", "gone", None)]
    lines = [to_wire(event, seq, 0.0) for seq, event in enumerate(stored, 5)]
    seen = TurnState()
    seen.apply(printed)

    state, next_seq = recall(5, lines)

    assert state.answers == seen.answers == {"msg_1": Answer("m", ModelUsage(Tokens(100, 45, 30, 4), 0.75), True)}
    assert (state.seen, state.session_id, next_seq) == ({"m": Tokens(100, 45, 30, 4)}, "s1", 9)

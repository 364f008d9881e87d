"""A meter reads within limits, and what it could not read makes the cost incomplete."""

from __future__ import annotations

import pytest

from adapters.claude_code.wire import AnthropicWire, MessageReader
from adapters.toolkit.metering import Meter
from adapters.toolkit.wire import duration_s
from adapters.usage import Tokens

from .answers import stream
from .test_anthropic_wire import ANSWER, COST, block, delta, start

LONG = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "x" * 5000})


def test_event_beyond_the_limit_makes_the_cost_incomplete_and_the_rest_is_read() -> None:
    meter = Meter(MessageReader(""), streamed=True, limit=2000)
    meter.feed(stream([start(), *LONG, delta(321)]))
    read = meter.end()
    assert (read.tokens, read.complete) == (COST.tokens, False)


def test_body_beyond_the_limit_is_not_kept() -> None:
    meter = Meter(MessageReader(""), streamed=False, limit=2000)
    for _ in range(100):
        meter.feed(b" " * 100)
        assert len(meter._body) <= 2000
    assert not meter.end().complete


def test_text_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    monkeypatch.setattr(MessageReader, "read", lambda self, record: read.append(record["type"]))
    meter = AnthropicWire().meter("", streamed=True)
    meter.feed(stream(ANSWER))
    meter.end()
    assert read == ["message_start", "message_delta"]


def test_end_can_be_asked_for_at_any_time() -> None:
    meter = AnthropicWire().meter("", streamed=True)
    assert meter.end().tokens == Tokens()
    meter.feed(stream(ANSWER))
    assert meter.end() == meter.end() == COST


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7), ("1.5", 1.5), ("6m0s", 360), ("1h2m3.5s", 3723.5), ("20ms", 0.02), ("0s", 0),
     ("", None), ("soon", None), ("-1", None), ("1d", None), ("1 s", None), ("nan", None), ("٣", None),
     ("9" * 10, None), ("1s" * 30, None)],
)  # fmt: skip
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds

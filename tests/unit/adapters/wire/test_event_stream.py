"""Server-sent events come out whole, wherever the stream is cut, and nothing grows without limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.toolkit.event_stream import EventStream

from .answers import pieces

CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=8)


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: one\n\ndata: two\n\n", [b"one", b"two"]),
        (b"data: one\r\n\r\ndata:two\r\rdata:  three\n\n", [b"one", b"two", b" three"]),
        (b"event: message\nid: 7\nretry: 10\ndata: one\ndata: more\n\n", [b"one\nmore"]),
        (b": a comment\n\n:\n\ndata\n\n", [b""]),
        (b"\xef\xbb\xbfdata: after a byte order mark\n\n", [b"after a byte order mark"]),
        (b"database: no\ndata : no\n\n", []),
        (b"data: unfinished\n", []),
        (b"data: unfinished", []),
        (b"", []),
    ],
)
def test_each_event_is_found(text: bytes, events: list[bytes]) -> None:
    assert EventStream().feed(text) == events
    stream = EventStream()
    assert [event for byte in text for event in stream.feed(bytes([byte]))] == events


@given(data=st.lists(st.text(alphabet="aö\u2028 :{}\"'", max_size=12), min_size=1, max_size=5), cuts=CUTS,
       end=st.sampled_from(["\n", "\r\n", "\r"]))  # fmt: skip
def test_cuts_change_nothing(data: list[str], cuts: list[int], end: str) -> None:
    text = "".join(f"event: x{end}data: {each}{end}{end}" for each in data).encode()
    stream = EventStream()
    found = [event for piece in pieces(text, cuts) for event in stream.feed(piece)]
    # After a last `\r`, nobody knows yet whether a `\n` follows.
    assert found + stream.feed(b":") == [each.encode() for each in data]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize(
    "long", [b"data: " + b"x" * 50, b"data: " + b"x" * 9 + b"%sdata: " + b"y" * 30, b"x" * 50]
)
def test_event_that_is_too_long_is_skipped_and_the_next_one_is_read(end: bytes, size: int, long: bytes) -> None:
    text = b"data: ok%s%s" + long + b"%s%sdata: next%s%s:"
    text = text.replace(b"%s", end)
    stream = EventStream(limit=20)
    found = [event for begin in range(0, len(text), size) for event in stream.feed(text[begin : begin + size])]
    assert found == [b"ok", b"next"]
    assert stream.skipped == (b"data" in long or size < len(long))


def test_line_without_end_is_not_kept() -> None:
    stream = EventStream(limit=1000)
    for _ in range(100):
        stream.feed(b"x" * 300)
        assert len(stream._line) <= 1000

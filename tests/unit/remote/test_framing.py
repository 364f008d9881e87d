from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.framing import LineFramer, LineOverflow


@given(st.lists(st.text("ab\n").map(str.encode)), st.integers(0, 99))
def test_lines_do_not_depend_on_how_the_stream_was_cut(chunks: list[bytes], offset: int) -> None:
    framer = LineFramer(offset)
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    *whole, rest = b"".join(chunks).split(b"\n")
    assert lines == whole
    assert framer.offset == offset + len(b"".join(chunks)) - len(rest)


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    framer, piece = LineFramer(), b"x" * 1000
    begun = time.process_time()
    for _ in range(12_000):
        assert framer.feed(piece) == []
    assert framer.feed(b"\n") == [piece * 12_000]
    assert time.process_time() - begun < 1.0


def test_many_short_lines_are_cut_fast() -> None:
    framer, chunk = LineFramer(), (b"x" * 1000 + b"\n") * 262
    begun = time.process_time()
    assert sum(len(framer.feed(chunk)) for _ in range(800)) == 262 * 800  # 200 MB
    assert time.process_time() - begun < 2.0


@pytest.mark.parametrize("chunks", [[b"ab\ncdefg"], [b"ab\ncd", b"efg"], [b"ab\ncdefg\n"], [b"ab\ncdef", b"g\nh"]])
def test_a_line_beyond_the_cap_is_refused_with_its_place(chunks: list[bytes]) -> None:
    framer = LineFramer(offset=100, max_line=4)
    with pytest.raises(LineOverflow) as overflow:
        for chunk in chunks:
            framer.feed(chunk)
    assert overflow.value.limit == 4
    assert overflow.value.offset == 103


def test_a_line_at_the_cap_is_a_line() -> None:
    assert LineFramer(max_line=4).feed(b"abcd\n") == [b"abcd"]

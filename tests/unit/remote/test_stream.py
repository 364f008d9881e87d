from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.spool import Batch, Exit
from remote.stream import Answer, EventStream, Ready, Refused

USED = b'"cpu_ms":"1234","memory_kib":"-","free_percent":"-"'
MARKER = b'\n{"runturn":"secret","exit":"3","reason":"exit",%b}\n' % USED


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def read(chunks: list[bytes], size: int = 0, offset: int = 0) -> tuple[list[Batch], EventStream]:
    stream = EventStream(offset, size, "secret")
    return [batch for chunk in chunks for batch in stream.feed(chunk)], stream


@given(st.lists(st.integers(0, 999)), st.text("ab{\n", max_size=30), st.integers(0, 60))
def test_output_is_exact_however_it_is_cut(cuts: list[int], text: str, size: int) -> None:
    output = text.encode().rstrip(b"{")  # an unfinished last line "{" looks like a piece of the marker
    batches, stream = read(pieces(output + MARKER, cuts), size)
    *lines, rest = output.split(b"\n")
    assert [line for batch in batches for line in batch.lines] == lines + ([rest] if rest else [])
    assert stream.exit == Exit(3, "exit")
    ends = [0, *(batch.end for batch in batches)]
    assert [batch.offset for batch in batches] == ends[:-1]
    assert all(batch.replayed == (batch.end <= size) for batch in batches)


def test_an_attachment_that_is_lost_resumes_behind_the_last_line_returned() -> None:
    batches, stream = read([b"one\n\ntw"], offset=40)
    assert [batch.lines for batch in batches] == [[b"one"]]
    assert stream.offset == 44  # the empty line may belong to a marker, so it was not returned


@pytest.mark.parametrize("torn", [b"", b"\n", b'\n{"ru', MARKER[:25], MARKER[:-3]])
def test_a_marker_torn_by_a_full_disk_leaves_no_text(torn: bytes) -> None:
    batches, stream = read([b"one\n", torn, MARKER])
    assert [line for batch in batches for line in batch.lines if line] == [b"one"]
    assert stream.exit == Exit(3, "exit")


def test_output_that_looks_like_a_marker_is_output() -> None:
    forged = b'{"runturn":"guess","exit":"0","reason":"exit",%b}' % USED
    batches, stream = read([forged + b"\n"])
    assert [batch.lines for batch in batches] == [[forged]]
    assert stream.exit is None


@pytest.mark.parametrize(
    "words",
    [
        b'"exit":"x","reason":5,' + USED,
        b'"exit":"0","reason":"well",' + USED,
        b'"exit":"0"',
        b'"exit":0,"reason":"exit",' + USED,
        b'"exit":"0","reason":"exit",' + USED + b',"more":[]',
        b'"exit":"99999","reason":"exit",' + USED,
        b'"exit":"0","reason":"exit","cpu_ms":"1"',
    ],
)
def test_only_what_a_supervisor_writes_is_a_marker(words: bytes) -> None:
    line = b'{"runturn":"secret",%b}' % words
    batches, stream = read([line + b"\nnext\n" + MARKER])
    assert [line for batch in batches for line in batch.lines] == [line, b"next"]
    assert stream.exit == Exit(3, "exit")


def test_end_says_what_the_turn_took_of_its_host() -> None:
    told = read([MARKER])[1].exit
    assert told is not None and (told.cpu_ms, told.peak_memory_bytes) == (1234, None)
    told = read([MARKER.replace(b"," + USED, b"")])[1].exit
    assert told == Exit(3, "exit") and told.cpu_ms is None, "as a turn of an older worker tells it"
    told = read([MARKER.replace(b'"-"', b'"2048"', 1).replace(b"1234", b"-").replace(b'"-"}', b'"7"}')])[1].exit
    assert told is not None
    assert (told.cpu_ms, told.peak_memory_bytes, told.least_free_percent) == (None, 2 * 2**20, 7)


def test_forged_figures_keep_no_turn_from_its_end() -> None:
    told = read([MARKER.replace(b"1234", b"1.5")])[1].exit
    assert told == Exit(3, "exit") and told.cpu_ms is None


def test_nobody_saw_the_exit_of_a_lost_turn() -> None:
    _, stream = read([MARKER.replace(b'"3"', b'"-"').replace(b'reason":"exit', b'reason":"lost')])
    assert stream.exit == Exit(None, "lost")


@given(st.lists(st.integers(0, 999)))
def test_what_start_up_files_print_is_skipped(cuts: list[int]) -> None:
    printed = b"Welcome!\nRT-READY other 1 x\nno newline\nRT-READY mine 17 2\nfirst\nsecond"
    answer, rest = Answer("mine"), b""
    found = None
    for piece in pieces(printed, cuts):
        if found:
            rest += piece
        elif found := answer.feed(piece):
            rest = answer.rest
    assert found == Ready(17, 2)
    assert rest == b"first\nsecond"


@pytest.mark.parametrize("words", ["", "x", "1 x", "1 2 3", "9" * 5000, f"1 {'9' * 5000}"])
def test_answer_without_proper_numbers_is_none(words: str) -> None:
    assert Answer("mine").feed(f"\nRT-READY mine {words}\n".encode()) is None


def test_much_noise_before_the_answer_is_skipped() -> None:
    answer = Answer("mine")
    assert all(answer.feed(b"noise\n" * 10_000) is None for _ in range(100))
    assert answer.feed(b"\nRT-REFUSED mine spool_full /spool: no space\n") == Refused(
        "spool_full", "/spool: no space"
    )

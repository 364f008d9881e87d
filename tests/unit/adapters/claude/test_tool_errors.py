"""How the error of a tool is cut down: the envelope, the colours, the length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.claude_code.parser import strip_envelope, tool_error_text
from adapters.toolkit.truncate import MAX_ERROR_BYTES, shorten, strip_ansi


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("<tool_use_error>File not found</tool_use_error>", "File not found"),
        ("\n<tool_use_error>a\nb</tool_use_error>\n", "a\nb"),
        ("<tool_use_error></tool_use_error>", ""),
        ("no envelope", "no envelope"),
        ("<tool_use_error>never closed", "<tool_use_error>never closed"),
        ("it said <tool_use_error>x</tool_use_error>", "it said <tool_use_error>x</tool_use_error>"),
    ],
)
def test_envelope_around_the_whole_text_is_removed(text: str, stripped: str) -> None:
    assert strip_envelope(text) == stripped


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;38;5;196mbold\x1b[m", "bold"),
        ("\x1b[2K\x1b[1Gline", "line"),
        ("\x1b[?25hcursor", "cursor"),
        ("array[0m]", "array[0m]"),
    ],
)
def test_terminal_sequences_are_removed(text: str, stripped: str) -> None:
    assert strip_ansi(text) == stripped


def test_2048_bytes_are_kept_as_they_are() -> None:
    text = "Exit code 1\n" + "x" * (MAX_ERROR_BYTES - 12)

    assert len(text.encode()) == MAX_ERROR_BYTES
    assert shorten(text) == text


def test_2049_bytes_are_cut_to_the_first_line_and_the_end() -> None:
    short = shorten("Exit code 1\n" + "x" * 2030 + "THE END")

    assert short.startswith("Exit code 1\n…\nx")
    assert short.endswith("xTHE END")
    assert len(short.encode()) == MAX_ERROR_BYTES


def test_one_long_line_keeps_its_beginning_and_its_end() -> None:
    short = shorten("BEGIN" + "x" * 5000 + "END")

    assert short.startswith("BEGIN")
    assert short.endswith("END")
    assert len(short.encode()) == MAX_ERROR_BYTES


def test_long_first_line_leaves_room_for_the_end() -> None:
    short = shorten("x" * 5000 + "\nfailed: 3 tests")

    assert short.endswith("\nfailed: 3 tests")
    assert len(short.encode()) <= MAX_ERROR_BYTES


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(0, 2000))
def test_no_character_is_cut_in_two(text: str, times: int) -> None:
    whole = text * times

    short = shorten(whole)

    assert len(short.encode()) <= MAX_ERROR_BYTES
    assert "\N{REPLACEMENT CHARACTER}" not in short or "\N{REPLACEMENT CHARACTER}" in whole
    if len(whole.encode()) > MAX_ERROR_BYTES:
        assert len(short.encode()) > MAX_ERROR_BYTES - 1024 - 8  # as much as fits


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Exit code 3", "Exit code 3"),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "a\nb"),
        ("<tool_use_error>\x1b[31mInputValidationError\x1b[0m</tool_use_error>", "InputValidationError"),
        ([{"type": "text", "text": 5}, "x", None], ""),
        (None, ""),
        (7, ""),
    ],
)
def test_text_of_a_failed_call(content: object, text: str) -> None:
    assert tool_error_text(content) == text


def test_all_three_in_their_order() -> None:
    text = "<tool_use_error>\x1b[31mExit code 1\x1b[0m\n" + "\x1b[2mx\x1b[0m" * 5000 + "END</tool_use_error>"

    short = tool_error_text(text)

    assert short.startswith("Exit code 1\n…\nxxx")
    assert short.endswith("xEND")
    assert len(short.encode()) == MAX_ERROR_BYTES

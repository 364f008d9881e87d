"""JSON is nested too deeply at the same level whatever Python reads it."""

from __future__ import annotations

import json

import pytest

from adapters.protocol.nesting import is_deeper, read
from adapters.toolkit.json_lines import decode


@pytest.mark.parametrize(
    ("value", "levels"),
    [("text", 0), ([], 1), ({}, 1), ([1, "two", None], 1), ({"n": {}}, 2), ([{}, {"n": [[]]}], 4)],
)
def test_levels_are_objects_and_arrays_within_each_other(value: object, levels: int) -> None:
    assert not is_deeper(value, levels)
    assert levels == 0 or is_deeper(value, levels - 1)


@pytest.mark.parametrize("opening", ["[", '{"n":'])
def test_five_hundred_levels_are_read_and_no_more(opening: str) -> None:
    def nested(levels: int) -> str:
        closing = "]" if opening == "[" else "}"
        return opening * (levels - 1) + opening[0] + closing * levels

    assert json.dumps(read(nested(500)), separators=(",", ":")) == nested(500)
    for levels in (501, 1000, 1400, 4000, 200_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            read(nested(levels))


@pytest.mark.parametrize("levels", [600, 1010])
def test_a_line_with_half_a_character_is_no_json_if_it_is_nested_too_deeply(levels: int) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(rb'{"cut":"\ud83d","n":' + b"[" * levels + b"]" * levels + b"}")

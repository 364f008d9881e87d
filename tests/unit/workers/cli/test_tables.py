"""Tables that fit the screen, ids that are short, and words that agree with their numbers."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from workers.cli.output import UNLIMITED, Column, counted, short_ids, table

COLUMNS = (Column("turn"), Column("host", spare=2), Column("cost", right=True, spare=1), Column("prompt", least=8))
ROW = ("t1", "build-host", "$1.00", "mend the build")
WHOLE = "t1    build-host  $1.00  mend the build"


def drawn(width: int, *rows: tuple[str, ...]) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=UNLIMITED).print(table(COLUMNS, rows, width))
    return [line.rstrip() for line in file.getvalue().splitlines()][1:]


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (len(WHOLE), WHOLE),
        (len(WHOLE) - 1, "t1    build-host  $1.00  mend the bui…"),
        (33, "t1    build-host  $1.00  mend th…"),
        (32, "t1    build-host  mend the build"),
        (25, "t1    mend the build"),
        (14, "t1    mend th…"),
        (10, "t1    mend th…"),
    ],
)
def test_spare_columns_go_before_the_last_is_cut_any_further(width: int, line: str) -> None:
    assert drawn(width, ROW) == [line]


def test_empty_column_goes_first() -> None:
    assert drawn(32, ("t1", "", "$1.00", "mend the build")) == ["t1    $1.00  mend the build"]


def test_ids_are_as_short_as_they_can_be_told_apart() -> None:
    ids = ["0a1b2c3d-0000", "1a1b2c3d-0000"]
    assert list(short_ids(ids).values()) == ["0a1b2c3d", "1a1b2c3d"]
    assert list(short_ids([*ids, "1a1b2c3d-0100"]).values()) == ["0a1b2c3d-00", "1a1b2c3d-00", "1a1b2c3d-01"]
    assert list(short_ids(["turn-1", "turn-10"]).values()) == ["turn-1", "turn-10"]
    assert short_ids(["t"]) == {"t": "t"}
    assert short_ids([]) == {}


def test_turns_of_a_session_keep_their_numbers() -> None:
    run = "0a1b2c3d-0000-4000-8000-000000000001"
    assert list(short_ids([f"{run}.1", f"{run}.12"]).values()) == ["0a1b2c3d.1", "0a1b2c3d.12"]


def test_one_is_not_many() -> None:
    assert [counted(count, "turn") for count in (0, 1, 2, 1000)] == ["0 turns", "1 turn", "2 turns", "1,000 turns"]

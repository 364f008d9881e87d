"""docs/compatibility.md has every row of the references once, and names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.pages import ROOT, page

# The numbered rows of 000, 001, 002 and 004, and the sections of 003, as the references have them.
NUMBERED = [
    *(f"A{number}" for number in range(1, 37)),
    *(f"B{number}" for number in range(1, 16)),
    *(f"C{number}" for number in range(1, 29)),
    *(f"D{number}" for number in range(1, 21)),
]
SECTIONS = [
    "agent section", "claude-code extension section", "agent.max_turns vs. claude-code.max_turns",
    "Permission mode", "StartSession", "RunTurn", "Session management flags", "StopSession", "EventStream",
    "Process shutdown", "Event type mapping", "Result event fields", "Token accounting", "Model tracking",
    "API timing", "Tool call tracking", "Tool error formatting", "Exit code mapping", "Stdout scanner failure",
    "SSH remote execution", "SSH options", "Shell quoting", "SSH exit codes", "Authentication",
    "Concurrency safety", "Adapter registration",
]  # fmt: skip
_ROW = re.compile(r"^\| (?!Row|Section)([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")

ROWS = _ROW.findall(page("docs/compatibility.md").text)


@cache
def _functions(path: str) -> frozenset[str]:
    file = ROOT / path
    tree = ast.parse(file.read_text()) if file.is_file() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_row_of_the_references_is_there_once_and_in_their_order() -> None:
    numbers = [row.split()[0] for row, _, _ in ROWS]
    assert [number for number in numbers if number in NUMBERED] == NUMBERED
    assert [row for row, _, _ in ROWS if row.split()[0] not in NUMBERED] == SECTIONS


def test_every_row_says_how_and_which_test_shows_it() -> None:
    without = [row for row, how, tests in ROWS if not how.strip() or not _TEST.findall(tests)]
    assert without == []


def test_every_test_exists() -> None:
    named = {named for _, _, tests in ROWS for named in _TEST.findall(tests)}
    assert sorted(f"{path}::{name}" for path, name in named if name not in _functions(path)) == []


def test_what_is_named_beside_tests_is_nothing() -> None:
    assert [row for row, _, tests in ROWS if _TEST.sub("", tests).strip()] == []

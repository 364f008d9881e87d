"""The table: a line a cell for those who watch, and one row a version for documents."""

from __future__ import annotations

from collections.abc import Iterable

from tests.agents.cells import Cell


def line(cell: Cell) -> str:
    """Return one cell as a line."""
    billed, booked = sum(cell.billed.values()), sum(cell.booked.values())
    kind = f" ({cell.kind})" if cell.kind else ""
    books = f"billed {billed:,} in {cell.requests}, booked {booked:,}, {'complete' if cell.complete else 'marked'}"
    holds = "ok  " if not cell.faults else "FAIL"
    text = f"{holds} {cell.agent} {cell.version} {cell.scene}: {cell.status}{kind} ×{cell.attempts}, {books}"
    return "\n".join([text, *(f"       {fault}" for fault in cell.faults)])


def table(cells: Iterable[Cell]) -> str:
    """Return all cells, a line each."""
    return "\n".join(map(line, cells))

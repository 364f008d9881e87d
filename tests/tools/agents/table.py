"""The cells as text: a line each for those who watch, and a table an agent for docs/adapters.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.tools.agents.cells import Cell
from tests.tools.agents.scenes import Scene

_TITLES = {
    Scene.SUCCESS: "Success",
    Scene.RESUME: "Resume",
    Scene.SCHEMA: "Structured output",
    Scene.REFUSED: "400",
    Scene.UNAUTHORIZED: "401",
    Scene.LIMITED: "429",
    Scene.CUT: "Cut stream",
    Scene.CANCEL: "Cancel",
    Scene.KILL_AGENT: "Agent killed",
    Scene.KILL_WORKER: "Worker killed",
    Scene.BESIDE: "Side requests",
    Scene.KILL_BESIDE: "Side requests, killed",
}


def line(cell: Cell) -> str:
    """Return one cell as a line, and what is wrong with it below."""
    billed, booked = sum(cell.billed.values()), sum(cell.booked.values())
    kind = f" ({cell.kind})" if cell.kind else ""
    books = f"billed {billed:,} in {cell.requests}, booked {booked:,}, {'complete' if cell.complete else 'marked'}"
    holds = "FAIL" if cell.faults else "n/a " if cell.unable else "ok  "
    text = f"{holds} {cell.agent} {cell.version} {cell.scene}: {cell.status}{kind} ×{cell.attempts}, {books}"
    return "\n".join([text, *(f"       {fault}" for fault in cell.faults)])


def tables(cells: Iterable[Cell]) -> str:
    """Return a table an agent: a row a version, a column a scene."""
    by_agent: dict[str, dict[str, dict[Scene, Cell]]] = {}
    for cell in cells:
        by_agent.setdefault(cell.agent, {}).setdefault(cell.version, {})[cell.scene] = cell
    return "\n".join("\n".join(_table(agent, rows)) for agent, rows in by_agent.items())


def _table(agent: str, rows: Mapping[str, Mapping[Scene, Cell]]) -> Iterator[str]:
    yield _row([f"`{agent}`", *_TITLES.values()])
    yield _row(["---"] * (1 + len(_TITLES)))
    for version, cells in rows.items():
        yield _row([version, *(_text(cells[scene]) if scene in cells else "" for scene in _TITLES)])
    yield ""


def _row(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


def _text(cell: Cell) -> str:
    if cell.refused:
        return "refused"
    if cell.unable:
        return "–"
    if cell.faults:
        return "**fails**"
    billed, booked = sum(cell.billed.values()), sum(cell.booked.values())
    books = f"{billed:,}" if cell.complete else f"{booked:,} of {billed:,}"
    kinds = "" if cell.kinds_agree or booked != billed else "\\*"
    return books + kinds + (f", ×{cell.attempts}" if cell.attempts > 1 else "")

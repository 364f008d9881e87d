"""What the last runs of the matrix came to, kept for the document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.tools.agents.cells import Cell
from tests.tools.agents.scenes import Scene
from tests.tools.agents.versions import VERSIONS

_FILE = Path(__file__).with_name("results.json")


def load() -> list[Cell]:
    """Return all cells that were played, in the order of the table."""
    rows = json.loads(_FILE.read_bytes()) if _FILE.exists() else []
    return sorted(map(_cell, rows), key=order)


def save(cells: Iterable[Cell]) -> None:
    """Put these in the place of what was played before."""
    by_place = {order(cell): cell for cell in [*load(), *cells]}
    rows = [json.dumps(asdict(by_place[place]), sort_keys=True) for place in sorted(by_place)]
    _FILE.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def _cell(row: dict[str, Any]) -> Cell:
    several = {name: tuple(row.get(name, ())) for name in ("left", "turns_wrong")}
    return Cell(**{**row, "scene": Scene(row["scene"]), **several})


def order(cell: Cell) -> tuple[int, tuple[int, ...], int]:
    """Return where a cell stands: by agent, version and scene."""
    number = tuple(int(part) for part in cell.version.split("."))
    return list(VERSIONS).index(cell.agent), number, list(Scene).index(cell.scene)

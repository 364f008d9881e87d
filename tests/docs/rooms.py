"""The rooms of `workers`: which imports which, and what each contains. Drawn from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import grimp

from tests.support.places import ROOT

_PACKAGE = "workers"
_INIT = "__init__.py"

Graph = dict[str, set[str]]


def picture() -> str:
    """Return the rooms as a Mermaid flowchart; an arrow that others imply is left out."""
    edges = _reduced(_imports())
    lines = (f"    {room} --> {' & '.join(sorted(below))}" for room, below in sorted(edges.items()) if below)
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```", ""])


def table() -> Iterator[tuple[str, str]]:
    """Yield each room, or module without one, and the first line of its docstring."""
    for path in sorted((ROOT / _PACKAGE).iterdir()):
        source = path / _INIT if path.is_dir() else path
        if source.suffix == ".py" and source.exists() and path.name != _INIT:
            name = f"`{path.name}/`" if path.is_dir() else f"`{path.name}`"
            yield name, str(ast.get_docstring(ast.parse(source.read_text()))).partition("\n")[0]


def _imports() -> Graph:
    """Return which rooms each room imports."""
    graph = grimp.build_graph(_PACKAGE, cache_dir=None)
    found: Graph = {}
    for module in graph.modules - {_PACKAGE}:
        room = _room(module)
        imported = map(_room, graph.find_modules_directly_imported_by(module) - {_PACKAGE})
        found.setdefault(room, set()).update(set(imported) - {room})
    return found


def _room(module: str) -> str:
    return module.split(".")[1]


def _reduced(edges: Graph) -> Graph:
    """Return the graph without the edges that longer paths imply. Rooms that import each other imply nothing."""
    below = {room: set(direct) for room, direct in edges.items()}
    for middle in edges:
        for reached in below.values():
            if middle in reached:
                reached.update(below[middle])

    def implied(room: str, each: str) -> bool:
        return any(
            each in below[other] and other not in below[each] and room not in below[other] for other in edges[room]
        )

    return {room: {each for each in direct if not implied(room, each)} for room, direct in edges.items()}

"""The rooms of `workers`: which imports which, and what each contains. Drawn from the code."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import grimp

from tests.support.places import ROOT

_PACKAGE = "workers"
_INIT = "__init__.py"
_TOP = ("adapters", "ops", "remote", "tests", "workers")
MOST_MODULES = 20

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


def crowded() -> dict[str, int]:
    """Return the folders with more than `MOST_MODULES` modules, and how many each has."""
    paths = chain.from_iterable((ROOT / top).rglob("*.py") for top in _TOP)
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in paths if path.name != _INIT)
    return {folder: count for folder, count in counts.items() if count > MOST_MODULES}


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
    """Return the graph without the edges that longer paths imply."""
    below = {room: _reached(edges, room) for room in edges}
    return {
        room: direct - set(chain.from_iterable(below[each] for each in direct if room not in below[each]))
        for room, direct in edges.items()
    }


def _reached(edges: Graph, room: str) -> set[str]:
    """Return all rooms that a room imports, itself or through others; there are circles."""
    found: set[str] = set()
    ahead = [room]
    while ahead:
        new = edges[ahead.pop()] - found
        found |= new
        ahead += new
    return found

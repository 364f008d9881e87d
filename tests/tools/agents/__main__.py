"""`make test-agents`: play the matrix, print its table, and say what does not hold."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.tools.agents import results
from tests.tools.agents.alone import alone
from tests.tools.agents.cells import Cell
from tests.tools.agents.plays import play
from tests.tools.agents.scenes import Scene
from tests.tools.agents.stage import open_stage
from tests.tools.agents.table import line
from tests.tools.agents.versions import Version, versions

_AT_ONCE = 2  # versions


def main() -> int:
    """Play what was asked for; returns 1 if a cell does not hold."""
    options = _parse()
    try:
        chosen = versions(options.agent, options.version)
        scenes = [Scene(options.scene)] if options.scene else list(Scene)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    run = partial(_play, scenes=scenes)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        cells = sorted((cell for played in pool.map(run, chosen) for cell in played), key=results.order)
    results.save(cells)
    print("\n" + "\n".join(map(line, cells)))
    wrong, missing = sum(bool(cell.faults) for cell in cells), len(chosen) * len(scenes) - len(cells)
    print(f"{len(cells)} cells: {wrong} do not hold, {missing} were not played. `make docs` writes the table.")
    return 1 if wrong or missing else 0


def _play(version: Version, scenes: list[Scene]) -> list[Cell]:
    """Play one version; the others go on if it cannot be had."""
    played: list[Cell] = []
    try:
        with open_stage(version) as stage:
            for cell in play(stage, scenes):
                print(line(cell), flush=True)
                played.append(cell)
    except (RuntimeError, AssertionError, OSError) as error:
        print(f"FAIL {version}: {error}", flush=True)
    return played


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.agents", description=__doc__)
    parser.add_argument("--agent", default="")
    parser.add_argument("--version", default="")
    parser.add_argument("--scene", default="", help=", ".join(Scene))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(alone(main))

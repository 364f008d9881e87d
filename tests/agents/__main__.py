"""`make test-agents`: play the matrix, print its table, and say what does not hold."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.agents.cells import Cell
from tests.agents.plays import play
from tests.agents.scenes import Scene
from tests.agents.stage import open_stage
from tests.agents.table import line, table
from tests.agents.versions import Version, versions

_AT_ONCE = 2  # versions


def main() -> int:
    options = _parse()
    try:
        chosen = versions(options.agent, options.version)
        scenes = [Scene(options.scene)] if options.scene else list(Scene)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        cells = [cell for cells in pool.map(lambda version: _play(version, scenes), chosen) for cell in cells]
    print(f"\n{table(cells)}")
    wrong = [cell for cell in cells if cell.faults]
    print(f"{len(cells)} cells, {len(wrong)} of them do not hold")
    return 1 if wrong or len(cells) != len(chosen) * len(scenes) else 0


def _play(version: Version, scenes: list[Scene]) -> list[Cell]:
    played = []
    with open_stage(version) as stage:
        for cell in play(stage, scenes):
            print(line(cell), flush=True)
            played.append(cell)
    return played


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.agents", description=__doc__)
    parser.add_argument("--agent", default="")
    parser.add_argument("--version", default="")
    parser.add_argument("--scene", default="", help=", ".join(Scene))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""`make pictures`: run a fleet for three minutes, and draw all boards from the data of a real Prometheus."""

from __future__ import annotations

import random
import time

from tests.support.places import ROOT
from tests.support.waiting import until
from tests.tools.boards.data import Window
from tests.tools.boards.files import boards
from tests.tools.boards.picture import draw
from tests.tools.boards.stage import stage
from tests.tools.boards.story import LENGTH_S, SETTINGS, Story
from tests.tools.boards.turns import Cast

FOLDER = ROOT / "docs" / "pictures"


def main() -> None:
    """Draw all boards."""
    FOLDER.mkdir(exist_ok=True)
    cast = Cast(random.Random(7), pace=3.0)
    with stage(cast, **SETTINGS) as set_up, set_up.exporter(), set_up.prometheus() as prometheus:
        for number in (0, 1):
            set_up.start_worker(number)
        until(
            lambda: len(prometheus.query('up{job=~"runturn-.+"} == 1')) == 3, "Prometheus to scrape all processes"
        )
        print(f"running the fleet for {LENGTH_S:.0f} s …")
        began = time.time()
        Story(set_up, random.Random(11)).play()
        window = Window(prometheus, began, time.time(), rate_interval="20s")
        for name, board in boards().items():
            path = FOLDER / f"{name}.png"
            draw(board, window, path)
            print(f"{path.relative_to(FOLDER.parents[1])}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()

"""Draws a board: the panels in place, with titles, legends and units. Does not use Grafana."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from tests.tools.boards import drawn
from tests.tools.boards.data import Window
from tests.tools.boards.drawn import Frame
from tests.tools.boards.files import Panel
from tests.tools.boards.theme import BACKGROUND, DIM, EDGE, PANEL, TEXT

_WIDTH, _UNIT, _GAP, _HEAD, _FOOT = 1680, 34, 8, 58, 30  # pixels
_DPI = 100
_COLOURS = 256  # of the picture: enough, and a third of the bytes

_KINDS = {
    "stat": drawn.stat,
    "timeseries": drawn.timeseries,
    "bargauge": drawn.bargauge,
    "table": drawn.table,
    "state-timeline": drawn.timeline,
    "heatmap": drawn.heatmap,
}


def draw(board: Mapping[str, Any], window: Window, path: Path) -> None:
    """Draw a board from a Prometheus's data in a time window."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    height = _HEAD + rows * _UNIT + _FOOT
    figure = Figure(figsize=(_WIDTH / _DPI, height / _DPI), dpi=_DPI, facecolor=BACKGROUND)
    _head(figure, board, window, height)
    for panel in board["panels"]:
        place = panel["gridPos"]
        column = (_WIDTH - 2 * _GAP) / 24
        frame = Frame(
            figure=figure,
            x=_GAP + place["x"] * column + _GAP / 2,
            y=height - _HEAD - (place["y"] + place["h"]) * _UNIT + _GAP / 2,
            width=place["w"] * column - _GAP,
            height=place["h"] * _UNIT - _GAP,
            size=(_WIDTH, height),
        )
        if panel["type"] == "row":
            frame.text(4, frame.height / 2, f"▾  {panel['title']}", size=10.5, colour=TEXT, weight="bold")
        else:
            _background(frame)
            frame.text(10, frame.height - 14, panel["title"], size=8.5, colour=TEXT, weight="bold")
            _KINDS[panel["type"]](frame, Panel(board["uid"], panel), window)
    _save(figure, path)


def _head(figure: Figure, board: Mapping[str, Any], window: Window, height: float) -> None:
    frame = Frame(figure, 0, height - _HEAD, _WIDTH, _HEAD, (_WIDTH, height))
    frame.text(16, 34, board["title"], size=14, colour=TEXT, weight="bold")
    frame.text(16, 13, board["description"], size=9, colour=DIM)
    times = [datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") for at in (window.began, window.ended)]
    variables = [one["label"] for one in board["templating"]["list"] if one["type"] == "query"]
    chosen = "     ".join(f"{name}: All" for name in variables)
    frame.text(_WIDTH - 16, 34, f"{chosen}     {times[0]} to {times[1]}", size=9, colour=TEXT, align="right")
    said = "Drawn by runturn's own script from data of a real Prometheus. This is not Grafana's rendering."
    Frame(figure, 0, 0, _WIDTH, _FOOT, (_WIDTH, height)).text(16, 14, said, size=8.5, colour=DIM)


def _background(frame: Frame) -> None:
    axes = frame.axes(0, 0, frame.width, frame.height)
    axes.set_axis_off()
    axes.set_xlim(0, frame.width)
    axes.set_ylim(0, frame.height)
    shape = "round,pad=0,rounding_size=3"
    axes.add_patch(
        FancyBboxPatch(
            (0.5, 0.5),
            frame.width - 1,
            frame.height - 1,
            boxstyle=shape,
            facecolor=PANEL,
            edgecolor=EDGE,
            linewidth=0.8,
        )
    )


def _save(figure: Figure, path: Path) -> None:
    drawn_png = io.BytesIO()
    figure.savefig(drawn_png, format="png", facecolor=BACKGROUND)
    drawn_png.seek(0)
    picture = Image.open(drawn_png).convert("RGB")
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)

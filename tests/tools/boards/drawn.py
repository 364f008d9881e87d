"""Drawing functions for each kind of panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, MultipleLocator

from tests.tools.boards.data import Series, Window
from tests.tools.boards.files import Panel
from tests.tools.boards.theme import BEHIND, CYCLE, DIM, GRID, NAMED, PANEL, TEXT, colour_of
from tests.tools.boards.units import shown

_TITLE = 26  # pixels at the top of a panel
_LEGEND = 17  # pixels of a line of a legend
# Steps of axes whose numbers are not decimal.
_SCALES = {
    "s": (15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
    "bytes": tuple(size * 2.0**20 for size in (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)),
}
_BLUES = LinearSegmentedColormap.from_list("blues", [PANEL, "#1f4e8c", "#5794f2", "#c8dcff"])


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle of the picture, in pixels from its lower left corner."""

    figure: Figure
    x: float
    y: float
    width: float
    height: float
    size: tuple[float, float]  # of the picture

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes inside the frame."""
        whole_x, whole_y = self.size
        place = ((self.x + x) / whole_x, (self.y + y) / whole_y, width / whole_x, height / whole_y)
        axes = self.figure.add_axes(place, facecolor="none")
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float,
        colour: str,
        weight: str = "normal",
        align: str = "left",
    ) -> None:
        """Write a line of text, vertically centered at y."""
        self.figure.text(
            (self.x + x) / self.size[0],
            (self.y + y) / self.size[1],
            text.replace("$", r"\$"),
            fontsize=size,
            color=colour,
            fontweight=weight,
            ha=align,
            va="center",
        )


def stat(frame: Frame, panel: Panel, window: Window) -> None:
    """Draw a number, on a color if it can be bad."""
    found = window.series(panel.targets[0])
    defaults, options = panel.json["fieldConfig"]["defaults"], panel.json["options"]
    value = found[0].last if found and found[0].points else None
    text = defaults["noValue"] if value is None else shown(value, panel.unit, defaults.get("decimals"))
    name = "text" if value is None else colour_of(value, defaults["thresholds"]["steps"])
    filled = options["colorMode"] == "background" and value is not None
    if filled:
        axes = frame.axes(1, 1, frame.width - 2, frame.height - 2)
        axes.set_facecolor(BEHIND[name])
        axes.set_xticks([])
        axes.set_yticks([])
        frame.text(10, frame.height - 14, panel.title, size=8.5, colour="#ffffff", weight="bold")
    if options["graphMode"] == "area" and found and found[0].points:
        _sparkline(frame, found[0], NAMED[name])
    size = min(24.0, 1.35 * frame.width / max(4, len(text)))
    colour = "#ffffff" if filled else NAMED[name]
    frame.text(frame.width / 2, frame.height * 0.44, text, size=size, colour=colour, weight="bold", align="center")


def timeseries(frame: Frame, panel: Panel, window: Window) -> None:
    """Draw lines, stacks or bars, with their legend below."""
    custom = panel.json["fieldConfig"]["defaults"]["custom"]
    series = [one for target in panel.targets for one in window.series(target) if one.points]
    lines = _legend_lines(frame, series)
    axes = _plot(frame, window, panel.unit, bottom=26 + _LEGEND * len(lines))
    colours = _colours(panel, series)
    times = np.arange(0, int(window.ended - window.began) + 1) + window.ended - int(window.ended - window.began)
    below, tops = np.zeros(len(times)), []
    bars, stacked = custom["drawStyle"] == "bars", custom["stacking"]["mode"] == "normal"
    for one, colour in zip(series, colours, strict=True):
        values = _on(times, one)
        if stacked or bars:
            top = below + np.nan_to_num(values)
            if bars:
                axes.fill_between(times, below, top, step="mid", color=colour, alpha=0.75, linewidth=0)
            else:
                axes.fill_between(times, below, top, color=colour, alpha=0.3, linewidth=0)
                axes.plot(times, top, color=colour, linewidth=1.1)
            tops.append(top)
            below = top if stacked else below
        else:
            tops.append(values)
            axes.plot(times, values, color=colour, linewidth=1.3)
            axes.fill_between(times, 0, values, color=colour, alpha=0.05, linewidth=0)
    dots = [] if bars else _dots(axes, panel, window)
    highest = max([float(np.nanmax(one)) for one in tops if not np.all(np.isnan(one))] + dots, default=0.0)
    _limits(axes, panel, highest)
    _write_legend(frame, lines, dict(zip((one.name for one in series), colours, strict=True)))
    if not series:
        frame.text(frame.width / 2, frame.height / 2, "no data", size=10, colour=DIM, align="center")


def bargauge(frame: Frame, panel: Panel, window: Window) -> None:
    """Draw one bar per series."""
    defaults = panel.json["fieldConfig"]["defaults"]
    series = sorted((one for one in window.series(panel.targets[0]) if one.points), key=lambda one: -one.last)
    if not series:
        frame.text(frame.width / 2, frame.height / 2, defaults["noValue"], size=12, colour=DIM, align="center")
        return
    most = defaults.get("max") or max(one.last for one in series) or 1.0
    room = frame.height - _TITLE - 10
    step = min(46.0, room / len(series))
    longest = max(len(one.name) for one in series)
    left, right = min(frame.width * 0.45, 7.0 * longest + 18), 78
    for place, one in enumerate(series):
        y = frame.height - _TITLE - 4 - step * (place + 0.5)
        colour = NAMED[colour_of(one.last, defaults["thresholds"]["steps"])]
        axes = frame.axes(left, y - step * 0.32, frame.width - left - right, step * 0.64)
        axes.set_xlim(0, most)
        axes.set_ylim(0, 1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_facecolor("#22252b")
        axes.barh(0.5, min(one.last, most), height=1, color=colour, alpha=0.85)
        frame.text(left - 8, y, one.name, size=8, colour=TEXT, align="right")
        text = shown(one.last, panel.unit, defaults.get("decimals"))
        frame.text(frame.width - right + 8, y, text, size=9, colour=colour, weight="bold")


def table(frame: Frame, panel: Panel, window: Window) -> None:
    """Draw rows and columns."""
    found = window.table(panel)
    overrides = panel.json["fieldConfig"]["overrides"]
    rules = {
        one["matcher"]["options"]: {rule["id"]: rule["value"] for rule in one["properties"]} for one in overrides
    }
    (organize,) = [one for one in panel.json["transformations"] if one["id"] == "organize"]
    options = organize["options"]
    titles = [
        options["renameByName"][name] for name in sorted(options["indexByName"], key=options["indexByName"].get)
    ]
    if not found:
        text = panel.json["fieldConfig"]["defaults"]["noValue"]
        frame.text(frame.width / 2, frame.height / 2, text, size=12, colour=DIM, align="center")
        return
    cells = [[_cell(row.get(title), rules.get(title, {})) for title in titles] for row in found]
    weights = [max(len(text) for text, _ in column) + 3 for column in zip(_headings(titles), *cells, strict=True)]
    edges = np.cumsum([0.0, *weights]) / sum(weights) * (frame.width - 24) + 12
    y = frame.height - _TITLE - 12
    for title, x in zip(titles, edges, strict=False):
        frame.text(x, y, title, size=8, colour=NAMED["blue"], weight="bold")
    room = int((frame.height - _TITLE - 30) // 22)
    for row in cells[:room]:
        y -= 22
        for (text, colour), x in zip(row, edges, strict=False):
            frame.text(x, y, text, size=8.5, colour=colour)
    if len(found) > room:
        frame.text(12, 8, f"and {len(found) - room} more", size=7.5, colour=DIM)


def _headings(titles: Sequence[str]) -> list[tuple[str, str]]:
    return [(title, TEXT) for title in titles]


def _cell(value: float | str | None, rule: dict[str, Any]) -> tuple[str, str]:
    """Return the text of a cell and its color."""
    if isinstance(value, str) or value is None:
        return value or "", TEXT
    coloured = "thresholds" in rule
    colour = NAMED[colour_of(value, rule["thresholds"]["steps"])] if coloured else TEXT
    return shown(value, rule["unit"], rule.get("decimals")), colour


def timeline(frame: Frame, panel: Panel, window: Window) -> None:
    """Draw when each series was up or down."""
    series = [one for target in panel.targets for one in window.series(target) if one.points]
    longest = max((len(one.name) for one in series), default=0)
    left = min(frame.width * 0.5, 6.4 * longest + 20)
    axes = frame.axes(left, 26, frame.width - left - 14, frame.height - _TITLE - 30)
    axes.set_xlim(window.began, window.ended)
    axes.set_ylim(-len(series), 0)
    _time_axis(axes)
    axes.set_yticks([])
    for place, one in enumerate(series):
        spans, colours = _spans(one, -place - 0.5)
        width = 0.62 * (frame.height - _TITLE - 30) / max(1, len(series)) * 72 / 100
        axes.add_collection(LineCollection(spans, colors=colours, linewidths=min(width, 20), capstyle="butt"))
        y = 26 + (frame.height - _TITLE - 30) * (1 - (place + 0.5) / len(series))
        frame.text(left - 8, y, one.name, size=8, colour=TEXT, align="right")


def _spans(series: Series, y: float) -> tuple[list[list[tuple[float, float]]], list[str]]:
    """Return the periods up and down, with their colors; a second without a sample is a gap."""
    spans: list[list[tuple[float, float]]] = []
    colours: list[str] = []
    for at, value in series.points:
        colour = NAMED["green" if value >= 1 else "red"]
        if spans and colours[-1] == colour and at - spans[-1][1][0] < 1:
            spans[-1][1] = (at + 0.5, y)
        else:
            spans.append([(at - 0.5, y), (at + 0.5, y)])
            colours.append(colour)
    return spans, colours


def heatmap(frame: Frame, panel: Panel, window: Window) -> None:
    """Draw the number of observations by bucket and time."""
    series = sorted(window.series(panel.targets[0]), key=lambda one: float(one.name))
    axes = frame.axes(62, 26, frame.width - 76, frame.height - _TITLE - 32)
    axes.set_xlim(window.began, window.ended)
    _time_axis(axes)
    seconds = int(window.ended - window.began)
    times = np.arange(0, seconds + 1) + window.ended - seconds
    counts = np.array([np.nan_to_num(_on(times, one)) for one in series])
    cells = np.diff(counts, axis=0, prepend=0.0).clip(min=0.0)
    used = [place for place in range(len(series)) if cells[place].max() > 1e-9] or [0]
    low, high = max(0, min(used) - 1), min(len(series), max(used) + 2)
    bounds = [shown(float(one.name), panel.unit) if one.name != "+Inf" else "∞" for one in series[low:high]]
    edges = np.concatenate([times - 0.5, times[-1:] + 0.5])
    axes.pcolormesh(edges, np.arange(high - low + 1), np.sqrt(cells[low:high]), cmap=_BLUES, rasterized=True)
    axes.set_yticks(np.arange(high - low) + 1.0, bounds)
    axes.tick_params(axis="y", labelsize=7, colors=DIM, length=0)


def _plot(frame: Frame, window: Window, unit: str, bottom: float) -> Axes:
    left = 88 if "tok" in unit else 62
    axes = frame.axes(left, bottom, frame.width - left - 14, frame.height - _TITLE - bottom - 4)
    axes.set_xlim(window.began, window.ended)
    _time_axis(axes)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit).replace("$", r"\$")))
    axes.tick_params(axis="y", labelsize=7, colors=DIM, length=0)
    axes.grid(visible=True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def _time_axis(axes: Axes) -> None:
    """Label every half minute or minute, except at the edges, where labels would reach into the next panel."""
    began, ended = axes.get_xlim()
    step = 30 if axes.get_position().width > 0.3 else 60  # of the picture's width
    edge = 0.04 * (ended - began)
    ticks = np.arange(np.ceil((began + edge) / step) * step, ended - edge, step)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda at, _: datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S"))
    )
    axes.tick_params(axis="x", labelsize=7, colors=DIM, length=0)


def _limits(axes: Axes, panel: Panel, highest: float) -> None:
    defaults = panel.json["fieldConfig"]["defaults"]
    top = defaults.get("max") or (highest * 1.08 if highest > 0 else 1.0)
    axes.set_ylim(0, top)
    scale = _SCALES.get(panel.unit)
    step = next((step for step in scale if top / step <= 5), None) if scale else None
    if step is not None and top > step:
        axes.yaxis.set_major_locator(MultipleLocator(step))
    style = defaults["custom"].get("thresholdsStyle", {}).get("mode")
    if style == "dashed":
        for step in defaults["thresholds"]["steps"]:
            if step.get("value") is not None:
                axes.axhline(step["value"], color=NAMED[step["color"]], linestyle=(0, (5, 4)), linewidth=0.9)


def _dots(axes: Axes, panel: Panel, window: Window) -> list[float]:
    """Draw a dot per turn, which in Grafana links to it; return the values."""
    points = [
        point
        for target in panel.targets
        if target.exemplars and "_bucket" in target.expr
        for turn in window.turns(target).values()
        for point in turn
    ]
    if points:
        times, values = zip(*points, strict=True)
        axes.scatter(times, values, s=9, marker="D", color="#8ab8ff", alpha=0.55, linewidths=0, zorder=3)
    return [value for _, value in points]


def _sparkline(frame: Frame, series: Series, colour: str) -> None:
    axes = frame.axes(1, 1, frame.width - 2, frame.height * 0.32)
    times, values = zip(*series.points, strict=True)
    axes.fill_between(times, 0, values, color=colour, alpha=0.25, linewidth=0)
    axes.plot(times, values, color=colour, linewidth=1)
    axes.set_xlim(times[0], times[-1])
    axes.set_ylim(0, max(values) * 1.1 or 1)
    axes.set_axis_off()


def _on(times: Any, series: Series) -> Any:
    """Return the values at these times; NaN where there is none."""
    found = {round(at): value for at, value in series.points}
    return np.array([found.get(round(at), np.nan) for at in times])


def _colours(panel: Panel, series: Sequence[Series]) -> list[str]:
    fixed = {
        one["matcher"]["options"]: NAMED[rule["value"]["fixedColor"]]
        for one in panel.json["fieldConfig"]["overrides"]
        for rule in one["properties"]
        if rule["id"] == "color"
    }
    free = iter([colour for colour in CYCLE if colour not in fixed.values()] * 5)
    return [fixed.get(one.name) or next(free) for one in series]


def _legend_lines(frame: Frame, series: Sequence[Series]) -> list[list[tuple[float, str]]]:
    """Return the position of each name, in at most two lines."""
    lines: list[list[tuple[float, str]]] = [[]]
    x = 14.0
    for one in series:
        width = 6.1 * len(one.name) + 30
        if x + width > frame.width and lines[-1]:
            lines.append([])
            x = 14.0
        lines[-1].append((x, one.name))
        x += width
    return lines[:2] if series else []


def _write_legend(frame: Frame, lines: list[list[tuple[float, str]]], colours: dict[str, str]) -> None:
    for number, line in enumerate(lines):
        y = 6 + _LEGEND * (len(lines) - 1 - number) + 5
        for x, name in line:
            frame.text(x, y + 1, "▬", size=7, colour=colours[name])
            frame.text(x + 13, y, name, size=7.5, colour=TEXT)

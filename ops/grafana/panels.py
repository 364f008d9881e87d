"""The kinds of panels that the boards are made of. Each has a title, a description and a unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel = Builder[model.Panel]
T = TypeVar("T")

# The boards' variable, so that they can be imported beside any Prometheus.
DATASOURCE = shapes.DataSourceRef(type_val="prometheus", uid="${datasource}")

COUNT = "short"
SECONDS = "s"
SHARE = "percentunit"
USD = "currencyUSD"
USD_PER_HOUR = "suffix: $/h"
PER_MINUTE = "suffix: /min"
TOKENS_PER_MINUTE = "suffix: tok/min"
BYTES = "bytes"
CORES = "suffix: cores"
UP = "bool_on_off"

GREEN, YELLOW, ORANGE, RED, BLUE = "green", "yellow", "orange", "red", "blue"

# From which value on a panel has a colour.
Steps = Sequence[tuple[float | None, str]]
PLAIN: Steps = ((None, BLUE),)
ANY_IS_BAD: Steps = ((None, GREEN), (1, RED))
ANY_IS_ODD: Steps = ((None, GREEN), (1, ORANGE))

_BY_THRESHOLD = dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)
_GREY = "#4a4d55"

# The colours of outcomes and kinds of tokens, on all boards.
COLOURS = {
    "completed": "green",
    "turn_cancelled": "text",
    "ok": "green",
    "error": "red",
    "input": "blue",
    "output": "orange",
    "cache_read": "green",
    "cache_creation": "purple",
}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, and what its series are called."""

    expr: str
    legend: str = ""
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: a query that has one value a row."""

    title: str
    expr: str
    unit: str
    steps: Steps | None = None
    decimals: int | None = None


def number(
    title: str,
    description: str,
    unit: str,
    expr: str,
    *,
    steps: Steps = PLAIN,
    width: int = 4,
    decimals: int | None = None,
    trend: bool = False,
    none: str = "–",
) -> Panel:
    """One number as it is now; `trend` draws how it came there. `none` stands where there is nothing to tell."""
    panel = (
        stat.Panel()
        .span(width)
        .height(4)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .with_target(_target(Query(expr), instant=not trend))
        .thresholds(_thresholds(steps))
        .color_scheme(_BY_THRESHOLD)
        .mappings([_nothing(none)])
        .color_mode(_colour_mode(steps))
        .graph_mode(shapes.BigValueGraphMode.AREA if trend else shapes.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value(none)
    )
    return panel if decimals is None else panel.decimals(decimals)


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    bars: bool = False,
    limit: float | None = None,
    top: float | None = None,
) -> Panel:
    """Series over time. `bars` for what happens now and then; from `limit` on it is bad; `top` ends the axis."""
    panel = (
        timeseries.Panel()
        .span(width)
        .height(height)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .draw_style(shapes.GraphDrawStyle.BARS if bars else shapes.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(70 if bars else 25 if stacked else 10)
        .show_points(shapes.VisibilityMode.NEVER)
        .stacking(
            common.StackingConfig().mode(shapes.StackingMode.NORMAL if stacked else shapes.StackingMode.NONE)
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(
            common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING)
        )
    )
    for letter, query in _lettered(queries):
        panel.with_target(_target(query, letter))
    if limit is not None:
        panel.thresholds(_thresholds(((None, GREEN), (limit, RED))))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED))
    if top is not None:
        panel.max(top)
    coloured = any(query.legend in {"{{outcome}}", "{{type}}"} for query in queries)
    for name, colour in COLOURS.items() if coloured else ():
        panel.override_by_name(name, [_property("color", {"mode": "fixed", "fixedColor": colour})])
    return panel


def ranking(
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    width: int = 8,
    height: int = 8,
    steps: Steps = PLAIN,
    top: float | None = None,
    decimals: int | None = None,
) -> Panel:
    """One bar for each series, as it is now."""
    panel = (
        bargauge.Panel()
        .span(width)
        .height(height)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .with_target(_target(query, instant=True))
        .thresholds(_thresholds(steps))
        .color_scheme(_BY_THRESHOLD)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("none")
    )
    if top is not None:
        panel.max(top)
    return panel if decimals is None else panel.decimals(decimals)


def rows(
    title: str,
    description: str,
    keys: Mapping[str, str],
    *columns: Column,
    width: int = 24,
    height: int = 7,
    none: str = "none",
) -> Panel:
    """A table with one row for each combination of labels. `keys` names the labels' columns."""
    renamed = {f"Value #{letter}": column.title for letter, column in _lettered(columns)}
    if len(columns) == 1:  # Grafana numbers the values of several queries only
        renamed = {"Value": columns[0].title}
    order = [*keys, *renamed]
    panel = (
        table.Panel()
        .span(width)
        .height(height)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(COUNT)
        .no_value(none)
        .cell_height(shapes.TableCellHeight.SM)
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True},
                    "indexByName": {name: place for place, name in enumerate(order)},
                    "renameByName": {**keys, **renamed},
                },
            )
        )
    )
    for letter, column in _lettered(columns):
        panel.with_target(_target(Query(column.expr), letter, instant=True, form=PromQueryFormat.TABLE))
        properties = [_property("unit", column.unit)]
        if column.decimals is not None:
            properties.append(_property("decimals", column.decimals))
        if column.steps:
            properties.append(_property("thresholds", _thresholds(column.steps).build().to_json()))
            properties.append(_property("color", {"mode": "thresholds"}))
            properties.append(_property("custom.cellOptions", {"type": "color-text"}))
        panel.override_by_name(column.title, properties)
    return panel


def states(title: str, description: str, *queries: Query, width: int = 12, height: int = 6) -> Panel:
    """When what was up, and when it was down."""
    panel = (
        statetimeline.Panel()
        .span(width)
        .height(height)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(UP)
        .mappings([_value("0", "down", RED, 0), _value("1", "up", GREEN, 1)])
        .thresholds(_thresholds(((None, RED), (1, GREEN))))
        .color_scheme(_BY_THRESHOLD)
        .show_value(shapes.VisibilityMode.NEVER)
        .merge_values(True)
        .fill_opacity(80)
        .row_height(0.8)
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(False)
        )
    )
    for letter, query in _lettered(queries):
        panel.with_target(_target(query, letter))
    return panel


def distribution(title: str, description: str, unit: str, query: Query, *, width: int = 12) -> Panel:
    """A histogram over time: how many were how large."""
    colours = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_model.HeatmapColorMode.SCHEME)
        .scheme("Blues")
        .exponent(0.5)
        .steps(32)
        .reverse(False)
        .fill("dark-orange")
    )
    return (
        heatmap.Panel()
        .span(width)
        .height(8)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(COUNT)
        .with_target(_target(query, form=PromQueryFormat.HEATMAP))
        .calculate(False)
        .color(colours)
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .hide_legend()
    )


def _target(
    query: Query,
    letter: str = "A",
    *,
    instant: bool = False,
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(letter).format(form).datasource(DATASOURCE)
    target = target.instant() if instant else target.range()
    target.legend_format(query.legend or "__auto")
    return target.exemplar(query.exemplars)


def _lettered(items: Sequence[T]) -> Iterator[tuple[str, T]]:
    return zip(ascii_uppercase, items, strict=False)


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    found = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)


def _colour_mode(steps: Steps) -> shapes.BigValueColorMode:
    """Numbers that can be bad are seen from afar; others are just numbers."""
    return shapes.BigValueColorMode.BACKGROUND if len(steps) > 1 else shapes.BigValueColorMode.VALUE


def _property(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=name, value=value)


def _nothing(text: str) -> model.SpecialValueMap:
    """Grafana would give the colour of the lowest values, often red, to what has no value."""
    result = model.ValueMappingResult(text=text, color=_GREY, index=0)
    options = model.DashboardSpecialValueMapOptions(match=model.SpecialValueMatch.NULL_AND_NAN, result=result)
    return model.SpecialValueMap(options=options)


def _value(number: str, text: str, colour: str, place: int) -> model.ValueMap:
    return model.ValueMap(options={number: model.ValueMappingResult(text=text, color=colour, index=place)})

"""Panel types of the boards. Each panel has a title, a description and a unit."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
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

from tests.tools.dashboards.colours import (
    BY_THRESHOLD,
    COLOURS,
    GREEN,
    PLAIN,
    RED,
    Steps,
    named,
    no_value,
    thresholds,
)
from tests.tools.dashboards.query import DATASOURCE, Column, Query, lettered, target
from tests.tools.dashboards.units import COUNT, UP

Panel = Builder[model.Panel]


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
    """Return a panel with one current number; `trend` adds its history. `none` is shown if there is no value."""
    panel = (
        stat.Panel()
        .span(width)
        .height(4)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .with_target(target(Query(expr), instant=not trend))
        .thresholds(thresholds(steps))
        .color_scheme(BY_THRESHOLD)
        .mappings([no_value(none)])
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
    """Return a graph over time. `bars` suits rare events; values from `limit` on are bad; `top` ends the axis."""
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
    for letter, query in lettered(queries):
        panel.with_target(target(query, letter))
    if limit is not None:
        panel.thresholds(thresholds(((None, GREEN), (limit, RED))))
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
    """Return a panel with one bar per series, for the current values."""
    panel = (
        bargauge.Panel()
        .span(width)
        .height(height)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .with_target(target(query, instant=True))
        .thresholds(thresholds(steps))
        .color_scheme(BY_THRESHOLD)
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
    """Return a table with one row per combination of labels. `keys` names the labels' columns."""
    renamed = {f"Value #{letter}": column.title for letter, column in lettered(columns)}
    if len(columns) == 1:  # Grafana numbers values only if there are several queries
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
    for letter, column in lettered(columns):
        panel.with_target(target(Query(column.expr), letter, instant=True, form=PromQueryFormat.TABLE))
        properties = [_property("unit", column.unit)]
        if column.decimals is not None:
            properties.append(_property("decimals", column.decimals))
        if column.steps:
            properties.append(_property("thresholds", thresholds(column.steps).build().to_json()))
            properties.append(_property("color", {"mode": "thresholds"}))
            properties.append(_property("custom.cellOptions", {"type": "color-text"}))
        panel.override_by_name(column.title, properties)
    return panel


def states(title: str, description: str, *queries: Query, width: int = 12, height: int = 6) -> Panel:
    """Return a timeline of up and down states."""
    panel = (
        statetimeline.Panel()
        .span(width)
        .height(height)
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(UP)
        .mappings([named("0", "down", RED, 0), named("1", "up", GREEN, 1)])
        .thresholds(thresholds(((None, RED), (1, GREEN))))
        .color_scheme(BY_THRESHOLD)
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
    for letter, query in lettered(queries):
        panel.with_target(target(query, letter))
    return panel


def distribution(title: str, description: str, unit: str, query: Query, *, width: int = 12) -> Panel:
    """Return a heatmap: a histogram over time."""
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
        .with_target(target(query, form=PromQueryFormat.HEATMAP))
        .calculate(False)
        .color(colours)
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .hide_legend()
    )


def _colour_mode(steps: Steps) -> shapes.BigValueColorMode:
    """Return a coloured background for numbers that can be bad, coloured text for others."""
    return shapes.BigValueColorMode.BACKGROUND if len(steps) > 1 else shapes.BigValueColorMode.VALUE


def _property(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=name, value=value)

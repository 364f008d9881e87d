"""Boards: sections of panels, and the variables that their queries use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from tests.tools.dashboards.panels import Panel
from tests.tools.dashboards.query import DATASOURCE

COLUMNS = 24
TAG = "runturn"

# Label and source of each variable.
_VARIABLES = {
    "agent": ("Agent", "label_values(runturn_settled_turns_total, agent)"),
    "model": ("Model", "label_values(runturn_tokens_total, model)"),
    "host": ("Host", "label_values(runturn_host_up, host)"),
}


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. Its file is NAME.json, its uid `runturn-NAME`."""

    name: str
    title: str
    description: str
    sections: tuple[Section, ...]
    variables: tuple[str, ...] = ()
    since: str = "now-3h"
    refresh: str = "30s"

    @property
    def uid(self) -> str:
        """Identifier for links and provisioning."""
        return f"runturn-{self.name}"

    def json(self) -> str:
        """Return the text of the file."""
        return json.dumps(self._build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def _build(self) -> model.Dashboard:
        board = (
            dashboard.Dashboard(f"runturn / {self.title}")
            .uid(self.uid)
            .description(self.description)
            .tags([TAG])
            .timezone("browser")
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .time(self.since, "now")
            .refresh(self.refresh)
            .annotations([])
            .variables([_datasource(), *map(_variable, self.variables)])
            .build()
        )
        board.links = [_links()]
        board.panels = list(self._placed())
        return board

    def _placed(self) -> Iterator[model.Panel | model.RowPanel]:
        """Yield panels from left to right, as many as fit, in rows as high as the tallest."""
        x = y = height = number = 0
        for section in self.sections:
            y, x, height = y + height, 0, 0
            number += 1
            yield dashboard.Row(section.title).id(number).grid_pos(model.GridPos(h=1, w=COLUMNS, x=0, y=y)).build()
            y += 1
            for builder in section.panels:
                panel = builder.build()
                place = panel.grid_pos or model.GridPos()
                if x + place.w > COLUMNS:
                    y, x, height = y + height, 0, 0
                number += 1
                panel.id_val, place.x, place.y = number, x, y
                x += place.w
                height = max(height, place.h)
                yield panel


def _links() -> model.DashboardLink:
    """Return the menu of the other boards; it keeps time range and variables."""
    link = model.DashboardLink(
        title="Boards",
        type_val=model.DashboardLinkType.DASHBOARDS,
        tags=[TAG],
        include_vars=True,
        keep_time=True,
    )
    link.placement = None  # type: ignore[assignment]  # the builders' default hides links in a menu
    return link


def _datasource() -> dashboard.DatasourceVariable:
    runturn = model.VariableOption(selected=True, text="runturn", value="runturn-prometheus")
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus").current(runturn)


def _variable(name: str) -> dashboard.QueryVariable:
    label, query = _VARIABLES[name]
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .definition(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")  # includes series whose label value is empty or no longer listed
        .current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )

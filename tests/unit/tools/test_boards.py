"""The boards on paper: what is committed is what the code makes, and nothing in it is left to chance."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.places import ROOT
from tests.tools.boards.files import FOLDER, Panel, boards, filled, panels
from tests.tools.boards.metrics import SCRAPED, known, ours
from tests.tools.boards.promql import groupings, selectors
from tests.tools.dashboards.boards import BOARDS

DOCS = ROOT / "docs"
PROVISIONING = FOLDER.parent / "provisioning"
ALL_PANELS = list(panels())
QUERIES = [(panel, target) for panel in ALL_PANELS for target in panel.targets]


def _used(expr: str) -> set[str]:
    """The names of the metrics of a query."""
    return {selector.name for selector in selectors(promql_parser.parse(filled(expr)))}


def test_committed_boards_are_what_the_code_makes() -> None:
    made = {f"{board.name}.json": board.json() for board in BOARDS}
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert committed == made, "run `make dashboards`, and commit what it writes"


def test_boards_have_one_uid_and_one_title_each() -> None:
    for field in ("uid", "title"):
        values = [board[field] for board in boards().values()]
        assert len(set(values)) == len(values)
    assert all(re.fullmatch(r"[a-z0-9-]{8,40}", board["uid"]) for board in boards().values())


@pytest.mark.parametrize("name", boards())
def test_board_is_of_the_schema(name: str) -> None:
    """Grafana's own package reads it, and writes the same again."""
    board = boards()[name]
    assert board["schemaVersion"] == 42
    assert "id" not in board, "the server numbers boards itself"
    again = Dashboard.from_json(board)
    assert (again.uid, again.title, len(again.panels or [])) == (
        board["uid"],
        board["title"],
        len(board["panels"]),
    )
    assert {panel["type"] for panel in board["panels"]} <= {
        "row",
        "stat",
        "timeseries",
        "bargauge",
        "table",
        "state-timeline",
        "heatmap",
    }


@pytest.mark.parametrize("name", boards())
def test_panels_have_ids_and_places_of_their_own(name: str) -> None:
    found = boards()[name]["panels"]
    assert [panel["id"] for panel in found] == list(range(1, len(found) + 1))
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in found)
    for one, other in combinations(found, 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


@pytest.mark.parametrize("name", boards())
def test_rows_of_panels_fill_the_width(name: str) -> None:
    """A hole at the right would look like a panel that is missing."""
    cells: Counter[int] = Counter()
    for panel in boards()[name]["panels"]:
        place = panel["gridPos"]
        for y in range(place["y"], place["y"] + place["h"]):
            cells[y] += place["w"]
    assert set(cells.values()) == {24}


@pytest.mark.parametrize("panel", ALL_PANELS, ids=str)
def test_panel_says_what_it_shows(panel: Panel) -> None:
    assert panel.title
    assert panel.json["description"].endswith((".", "?", "bug"))
    assert panel.unit
    assert panel.targets
    assert panel.json["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    if panel.kind == "table":
        columns = panel.json["fieldConfig"]["overrides"]
        assert len(columns) == len(panel.targets)
        assert all(column["properties"][0]["id"] == "unit" for column in columns)


def test_titles_are_not_repeated_within_a_section() -> None:
    for name, board in boards().items():
        sections: list[list[str]] = []
        for panel in board["panels"]:
            if panel["type"] == "row":
                sections.append([])
            else:
                sections[-1].append(f"{panel['type']} {panel['title']}")
        assert all(len(set(titles)) == len(titles) for titles in sections), name


@pytest.mark.parametrize(("panel", "target"), QUERIES, ids=lambda value: str(value)[:80])
def test_query_uses_metrics_and_labels_that_exist(panel: Panel, target: Any) -> None:
    metrics = known()
    expr = promql_parser.parse(filled(target.expr))
    found = list(selectors(expr))
    assert found
    for selector in found:
        assert selector.name in metrics, f"{panel}: there is no {selector.name}"
        matched = {matcher.name for matcher in selector.matchers.matchers}
        assert matched <= metrics[selector.name], (
            f"{panel}: {selector.name} has no {matched - metrics[selector.name]}"
        )
    for labels, part in groupings(expr):
        below = frozenset().union(*(metrics[selector.name] for selector in selectors(part)))
        assert set(labels) <= below, f"{panel}: no {set(labels) - below}"
    named = set(re.findall(r"{{(\w+)}}", target.legend))
    assert named <= frozenset().union(*(metrics[selector.name] for selector in found))


def test_every_metric_has_a_panel() -> None:
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for _, target in QUERIES for name in _used(target.expr)}
    assert set(ours()) - shown == set()


def test_histograms_with_exemplars_show_them() -> None:
    """One query of those that draw a histogram over time asks for them: all of them would draw each turn again."""
    with_exemplars = {"runturn_turn_duration_seconds", "runturn_turn_cost_usd", "runturn_turn_queue_wait_seconds"}
    asked = {
        name.removesuffix("_bucket") for _, target in QUERIES if target.exemplars for name in _used(target.expr)
    }
    assert with_exemplars < asked


@pytest.mark.parametrize("name", boards())
def test_variables_are_those_that_the_queries_use(name: str) -> None:
    board = boards()[name]
    defined = {variable["name"] for variable in board["templating"]["list"]}
    queries = " ".join(target.expr for panel, target in QUERIES if panel.board == name)
    used = {found for found in re.findall(r"\$(\w+)", queries) if not found.startswith("__")}
    assert defined == used | {"datasource"}
    metrics = known()
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            assert label == variable["name"] and label in metrics[metric] - SCRAPED
            assert variable["allValue"] == ".*" and variable["includeAll"] and variable["multi"]


def test_filters_are_written_for_several_values() -> None:
    """Grafana joins the values that are chosen with |."""
    for panel, target in QUERIES:
        for name in ("agent", "model", "host"):
            assert target.expr.count(f"${name}") == target.expr.count(f'{name}=~"${name}"'), panel


def test_boards_are_linked() -> None:
    for board in boards().values():
        (link,) = board["links"]
        assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == (
            "dashboards",
            ["runturn"],
            True,
            True,
        )
        assert board["tags"] == ["runturn"]


def test_provisioning_points_at_the_boards_and_at_their_datasource() -> None:
    (source,) = _provisioned(PROVISIONING / "datasources" / "runturn.yaml")["datasources"]
    assert source["type"] == "prometheus"
    for board in boards().values():
        variable = next(one for one in board["templating"]["list"] if one["name"] == "datasource")
        assert (variable["type"], variable["query"], variable["current"]["value"]) == (
            "datasource",
            "prometheus",
            source["uid"],
        )
    (provider,) = _provisioned(PROVISIONING / "dashboards" / "runturn.yaml")["providers"]
    assert (provider["type"], provider["options"]["path"]) == ("file", "/var/lib/runturn/dashboards")


def test_page_shows_a_small_picture_of_every_board() -> None:
    page = (DOCS / "dashboards.md").read_text()
    for name, board in boards().items():
        title = board["title"].removeprefix("runturn / ")
        assert f"## {title}\n\n![{title}](pictures/{name}.png)\n" in page
        assert (DOCS / "pictures" / f"{name}.png").stat().st_size < 150 * 1024
    assert len(list((DOCS / "pictures").glob("*.png"))) >= len(boards())


def _provisioned(path: Path) -> Any:
    found = yaml.safe_load(path.read_text())
    assert found["apiVersion"] == 1
    return found


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )

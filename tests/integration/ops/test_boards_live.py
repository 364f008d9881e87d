"""Every query of every board finds data: on a real Prometheus that scrapes a fleet at work."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ops.ledger import BudgetKey, Period
from tests.support.prometheus_server import Prometheus
from tests.support.waiting import until
from tests.tools.boards.data import Window
from tests.tools.boards.files import Panel, panels
from tests.tools.boards.stage import Stage, stage
from tests.tools.boards.turns import MODELS, UNKNOWN, Cast

PANELS = list(panels())
NUMBERS = [panel for panel in PANELS if panel.kind == "stat"]
LABELS = {"team": "web"}
GROWING = (
    "tool_duration_seconds",
    "turn_queue_wait_seconds",
    "turn_first_event_seconds",
    "turn_api_duration_seconds",
    "attempt_peak_memory_bytes",
)


@pytest.fixture(scope="module")
def seen() -> Iterator[tuple[Window, Window]]:
    """One worker that has not had a turn yet; and later two, that have had a little of everything."""
    cast = Cast(random.Random(5), pace=0.2)
    with (
        stage(cast, agent__max_attempts="2", agent__lease_ms="12000") as set_up,
        set_up.exporter(),
        set_up.prometheus() as prometheus,
    ):
        began = time.time()
        set_up.start_worker(0)
        until(lambda: len(prometheus.query('up{job=~"runturn-.+"} == 1')) == 2, "a worker and an exporter")
        idle = Window(prometheus, began, time.time())
        set_up.start_worker(1)
        until(lambda: len(prometheus.query('up{job=~"runturn-.+"} == 1')) == 3, "all processes")
        # Rates see a series from its second sample on.
        set_up.fleet.client.result(set_up.queue(cast.completed(MODELS[0], 1)), 60)
        until(lambda: _value(prometheus, "sum(runturn_settled_turns_total)") == 1, "the first turn to be seen")
        turns = _play(set_up)
        for turn_id in turns:
            set_up.fleet.client.result(turn_id, 60)
        _shown(prometheus, len(set(turns)) + 1)
        for histogram in GROWING:
            until(lambda histogram=histogram: _grows(set_up, prometheus, histogram), f"{histogram} to grow")  # type: ignore[misc]
        yield idle, Window(prometheus, began, time.time())


@pytest.fixture(scope="module")
def window(seen: tuple[Window, Window]) -> Window:
    return seen[1]


def _play(set_up: Stage) -> list[str]:
    """A little of everything; returns the turns that will end."""
    cast, ledger = set_up.cast, set_up.fleet.ledger
    ledger.budgets.put(BudgetKey("team", "web", Period.DAY), 100.0, 0.1, time.time())
    ledger.budgets.put(BudgetKey("team", "docs", Period.TOTAL), 0.01, 5.0, time.time())
    set_up.queue_rubbish()
    set_up.queue_later(cast.completed(MODELS[0]), 3600)
    turns = [set_up.queue(cast.completed(model, 4, retries=3), labels=LABELS) for model in (*MODELS, UNKNOWN)]
    turns += [set_up.queue(cast.completed(MODELS[0], 3), host="local") for _ in range(3)]
    turns += [set_up.queue(cast.completed(MODELS[0], 2)) for _ in range(6)]
    turns += [set_up.queue(cast.replayed("e2_api_400_credit", exit_code=1))]
    turns += [set_up.queue(cast.replayed("j_conn_refused", exit_code=1))]
    turns += [set_up.queue(cast.replayed("f_max_turns", exit_code=1))]  # a failure that was paid for
    turns += [set_up.queue(cast.completed(MODELS[0]), labels={"team": "docs"})]
    again = set_up.request(cast.completed(MODELS[0]))
    turns += [set_up.fleet.client.enqueue(again) for _ in range(2)]
    return turns


def _shown(prometheus: Prometheus, turns: int) -> None:
    """Prometheus has seen all of it."""
    for metric in ("runturn_settled_turns_total", "runturn_turns_total"):
        until(lambda metric=metric: _value(prometheus, f"sum({metric})") == turns, f"{turns} turns in {metric}")  # type: ignore[misc]
    until(lambda: prometheus.query("rate(runturn_budget_denials_total[1m])"), "a budget's first refusal, twice")
    until(lambda: prometheus.query("rate(runturn_failed_attempt_cost_usd_total[1m])"), "spend in vain, twice")
    until(lambda: prometheus.query('ALERTS{alertstate="firing"}'), "an alert")


def _grows(set_up: Stage, prometheus: Prometheus, histogram: str) -> bool:
    """Another turn, if Prometheus first saw this one's series when all turns were in it: rates are 0 then."""
    if _value(prometheus, f"sum(increase(runturn_{histogram}_count[1m]))") > 0:
        return True
    cast = set_up.cast
    sampled = histogram == "attempt_peak_memory_bytes"  # every two seconds, with this lease
    set_up.fleet.client.result(set_up.queue(cast.silent(4.0) if sampled else cast.completed(MODELS[0], 3)), 60)
    return False


def _value(prometheus: Prometheus, query: str) -> float:
    found = prometheus.query(query)
    return float(found[0]["value"][1]) if found else 0.0


@pytest.mark.parametrize("panel", NUMBERS, ids=str)
def test_idle_worker_shows_numbers_or_says_that_there_are_none(seen: tuple[Window, Window], panel: Panel) -> None:
    expr = panel.targets[0].expr
    found = seen[0].instant(expr)
    assert len(found) <= 1 and not {"NaN", "+Inf", "-Inf"} & set(found)
    if expr.endswith(" or vector(0)"):
        assert len(found) == 1
    else:
        assert found or panel.json["fieldConfig"]["defaults"]["noValue"]


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_queries_of_panel_find_data(window: Window, panel: Panel) -> None:
    for target in panel.targets:
        assert window.samples(target), f"{panel}, query {target.letter}: {target.expr}"


DOTTED = [panel for panel in PANELS if any(target.exemplars for target in panel.targets)]


@pytest.mark.parametrize("panel", DOTTED, ids=str)
def test_dots_of_panel_are_turns(window: Window, panel: Panel) -> None:
    assert any(window.turns(target) for target in panel.targets if target.exemplars)


def test_books_say_what_was_spent(window: Window) -> None:
    """The numbers at the top of the money board: exact, also for models that are new in the range."""
    by_title: dict[str, Any] = {panel.title: panel for panel in PANELS if panel.board == "money"}
    (spent,) = window.samples(by_title["Spent"].targets[0])
    (booked,) = window.samples(by_title["Total booked"].targets[0])
    parts = window.samples(by_title["Cost per completed turn, by model"].targets[0])
    (whole,) = window.samples(by_title["Cost per completed turn"].targets[0])
    assert spent == pytest.approx(booked) and spent > 0
    assert sum(parts) == pytest.approx(whole)

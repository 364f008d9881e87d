"""What the exporter shows is what the ledger has and what the API billed, whoever was killed in between."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from adapters.claude_code.prices import cost_usd
from adapters.protocol.request import TurnRequest
from adapters.usage import Tokens
from ops.errors import UnknownTurn
from ops.ledger import State
from tests.fakes.model_api import Branch, Hold, ModelApi, Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import RUNTURN, Fleet
from tests.support.pages import Samples, scrape, verdict
from tests.support.waiting import until

SONNET = "claude-sonnet-4-5"
COST = "runturn_cost_usd_total"

SCRIPTS = (
    *(
        Script(
            f"quick{n}",
            (
                Reply((replies.bash(f"echo {n}"),), Usage(1000 + n, 200 + n, 3000 + n, 500 + n)),
                Reply((Text("done"),), Usage(50 + n, 30 + n, 4500 + n, 260 + n)),
            ),
        )
        for n in range(3)
    ),
    Script(
        "slow",
        (
            Reply((replies.agent("SUBJOB please", model="haiku"),), Usage(120, 45, 33, 7)),
            Reply((Text("at last"),), Usage(130, 46, 34, 8), hold=Hold("slow")),
        ),
        branches=(Branch((Reply((Text("sub done"),), Usage(310, 61, 11, 6)),), prompt="SUBJOB"),),
    ),
)


@contextmanager
def exporter(fleet: Fleet, log: Path) -> Iterator[str]:
    """A `runturn exporter`; yields its address."""
    with log.open("wb") as stderr:
        process = subprocess.Popen([*RUNTURN, "exporter"], env=fleet.environment, stdout=stderr, stderr=stderr)
    try:
        until(lambda: "exporter is ready" in log.read_text(), "the exporter")
        yield log.read_text().partition('"metrics": "')[2].partition('/metrics"')[0]
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_totals_survive_workers_that_are_killed_between_settle_and_scrape(tmp_path: Path) -> None:
    with claude_fleet(tmp_path, *SCRIPTS) as (fleet, api), exporter(fleet, tmp_path / "exporter.log") as url:
        until(lambda: verdict(f"{url}/readyz") == (200, {}), "an exporter that is ready")
        slow = fleet.client.enqueue(ask(fleet, "slow"))
        api.gate("slow").wait_until_reached()
        for n in range(3):
            turn_id = fleet.client.enqueue(ask(fleet, f"quick{n}"))
            until(partial(settled, fleet, turn_id), "its settlement")
            fleet.workers[-1].kill()  # with what it has counted, and while the slow turn runs
            fleet.start_worker()
        api.gate("slow").release()
        assert fleet.result(slow).text == "at last"
        fleet.workers[-1].kill()
        first, second = scrape(f"{url}/metrics"), scrape(f"{url}/metrics")
        billed, totals = bills(api), {row.model: row for row in fleet.ledger.reports.totals().models}
    assert len(billed) == 2
    assert tokens(first) == tokens(second) == billed == {model: row.tokens for model, row in totals.items()}
    cost = {dict(labels)["model"]: value for (name, labels), value in first.items() if name == COST}
    assert cost == {model: row.cost_usd for model, row in totals.items()}
    assert cost == pytest.approx({model: cost_usd(model, used) for model, used in billed.items()})


def ask(fleet: Fleet, script: str) -> TurnRequest:
    """A request whose API calls go to that script."""
    return fleet.request(f"do it [script:{script}]", options={"model": SONNET})


def settled(fleet: Fleet, turn_id: str) -> bool:
    """Whether the turn has its result, whether or not anybody was told."""
    try:
        return fleet.ledger.reports.turn(turn_id).state is State.SETTLED
    except UnknownTurn:
        return False


def bills(api: ModelApi) -> dict[str, Tokens]:
    """What the API charged, by model."""
    sums: dict[str, Tokens] = {}
    for bill in api.bills().values():
        for model, used in bill.by_model.items():
            charged = Tokens(used.input, used.output, used.cache_read, used.cache_creation)
            sums[model] = sums.get(model, Tokens()) + charged
    return sums


def tokens(samples: Samples) -> dict[str, Tokens]:
    """What the exporter shows, by model."""
    kinds: dict[str, dict[str, int]] = {}
    for (name, labels), value in samples.items():
        if name == "runturn_tokens_total":
            given = dict(labels)
            kinds.setdefault(given["model"], {})[given["type"]] = int(value)
    return {
        model: Tokens(found["input"], found["output"], found["cache_read"], found["cache_creation"])
        for model, found in kinds.items()
    }

"""The audit of the chaos run is not blind: it names each thing that is wrong."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest
import redis

from tests.support.needs import need
from tests.support.ssh.links import need_links
from tests.support.waiting import until
from tests.tools.chaos.audit import audit
from tests.tools.chaos.broker import Valkey
from tests.tools.chaos.form import SHORT
from tests.tools.chaos.stage import Stage, open_stage
from workers.app import QUEUE

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Six turns, one of each kind but the real one, whose workers have left."""
    need("sshd")
    need_links()
    form = replace(SHORT, turns=5, real=0, odd=0, longest_s=2.1)
    with open_stage(form, tmp_path_factory.mktemp("audit"), Valkey, random.Random(1)) as stage:
        stage.crew.wait_ready(form.recovery_s)
        for turn in stage.workload.turns:
            stage.producer.client.enqueue(turn.request)
        turns = [turn.id for turn in stage.workload.turns]
        until(lambda: all(map(stage.ledger.reports.result, turns)), "all turns to be settled", form.recovery_s)
        until(lambda: not stage.processes() and not stage.broker.messages(), "the rest to be done")
        stage.crew.dismiss()
        yield stage


def _execute(stage: Stage, statement: str) -> None:
    with psycopg.connect(stage.crew.environment["RUNTURN_LEDGER_URL"], autocommit=True) as connection:
        connection.execute(statement.encode())


def _started_twice(stage: Stage) -> None:
    spool = next(iter(stage.players.starts))
    with (stage.root / "players" / "starts").open("a") as starts:
        starts.write(f"{spool}\n")


def _two_agents_at_once(stage: Stage) -> None:
    (stage.root / "players" / "overlaps").write_text("plain-0.2\n")


def _not_booked(stage: Stage) -> None:
    _execute(stage, "UPDATE model_totals SET output_tokens = output_tokens - 1, cost_nano = cost_nano - 1")


def _event_lost(stage: Stage) -> None:
    _execute(stage, "DELETE FROM events WHERE turn_id = 'plain-0' AND first_seq = 1")


def _message_left(stage: Stage) -> None:
    with redis.Redis.from_url(stage.broker.url.replace("redis+socket", "unix")) as client:
        client.lpush(QUEUE, "{}")


def _counted_twice(stage: Stage) -> None:
    _execute(stage, "UPDATE outcome_totals SET turns = turns + 1 WHERE outcome = 'completed'")


def test_nothing_is_wrong_with_turns_that_nothing_happened_to(stage: Stage) -> None:
    found = audit(stage)
    assert found.faults == []
    assert found.turns == found.settled == len(stage.workload.turns)
    assert found.billed_tokens == found.booked_tokens > 0


def test_process_that_is_left_is_found(stage: Stage) -> None:
    left = subprocess.Popen(
        ["sleep", "60"], env={"PATH": os.environ["PATH"], "RUNTURN_SPOOL": f"{stage.hosts[1].spools}/plain-0.1"}
    )
    try:
        found = audit(stage)
    finally:
        left.kill()
        left.wait()
    assert found.processes_left == 1
    assert len(found.faults) == 1


@pytest.fixture
def lost(stage: Stage) -> Iterator[str]:
    """A turn with another attempt, whose agent was paid and whose spool was removed: nobody has read its bill."""
    bills = stage.root / "players" / "bills"
    before = bills.read_text()
    act = next(line.partition(" ")[2] for line in before.splitlines() if line.startswith("plain-0."))
    bills.write_text(f"{before}plain-0.9 {act}\n")
    stage.struck.removed.add("plain-0.9")
    try:
        yield "plain-0"
    finally:
        bills.write_text(before)
        stage.struck.removed.clear()
        stage.struck.may_be_short.clear()


def _flag(stage: Stage, turn_id: str, *, complete: bool) -> None:
    words = [f'"usage_complete":{str(each).lower()}' for each in (not complete, complete)]
    _execute(
        stage, f"UPDATE turns SET result = replace(result, '{words[0]}', '{words[1]}') WHERE turn_id = '{turn_id}'"
    )


def test_bill_that_is_lost_with_its_spool_is_right_only_if_the_turn_says_so(stage: Stage, lost: str) -> None:
    stage.struck.may_be_short.add(lost)
    assert audit(stage).faults != []
    _flag(stage, lost, complete=False)
    found = audit(stage)
    _flag(stage, lost, complete=True)
    assert found.faults == []
    assert found.billed_tokens == found.booked_tokens + found.flagged_tokens > found.booked_tokens


def test_bill_of_a_turn_that_was_not_struck_is_never_short(stage: Stage, lost: str) -> None:
    _flag(stage, lost, complete=False)
    found = audit(stage)
    _flag(stage, lost, complete=True)
    assert found.faults != []
    assert found.flagged_tokens == 0


# These go on top of one another: each has its own figure.
@pytest.mark.parametrize(
    ("tamper", "figure"),
    [
        (_started_twice, "duplicate_runs"),
        (_two_agents_at_once, "agents_at_once"),
        (_message_left, "messages_left"),
        (_counted_twice, "double_settled"),
        (_event_lost, "event_gaps"),
        (_not_booked, "booked_tokens"),
    ],
)
def test_each_thing_that_is_wrong_shows(stage: Stage, tamper: Callable[[Stage], None], figure: str) -> None:
    before = audit(stage)
    tamper(stage)
    after = audit(stage)
    changed = {name for name, value in after.figures().items() if value != before.figures()[name]}
    assert changed == ({"booked_tokens", "booked_usd"} if figure == "booked_tokens" else {figure})
    assert len(after.faults) > len(before.faults)

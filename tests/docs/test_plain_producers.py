"""Producers that have `celery[redis]` and nothing of runturn: every example of docs/producers.md for them runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, page
from tests.docs.plain_python import plain_python
from tests.docs.test_producers import all_run_by
from tests.integration.canvas.conftest import BROKERS, fleet_on
from tests.support.brokers.fixtures import rabbitmq
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.places import RECORDINGS

__all__ = ["rabbitmq"]

RUNS = "test_program_runs"
PROGRAMS = [
    block
    for block in page("docs/producers.md").blocks
    if block.language == "python" and not re.search(r"^from (adapters|ops|remote|workers)\b", block.text, re.M)
    if "beat_schedule" not in block.text  # `celery beat` runs that: tests/docs/test_schedule.py
]
NOT_THERE = ("adapters", "ops", "remote", "workers", "orjson", "pydantic", "structlog")

# Says what the real one has once said, in the session that it is told.
RECORDING = shlex.quote(str(RECORDINGS / "a_parallel_tools.jsonl"))
CLAUDE = f"""#!/bin/sh
case $1 in --version) echo '2.1.330 (Claude Code)'; exit ;; esac
cat >/dev/null
while [ $# -gt 0 ]; do case $1 in --session-id | --resume) session=$2 ;; esac; shift; done
exec sed "s/55335d49-1cc1-427c-9557-f27b71f9023c/$session/g" {RECORDING}
"""

# The document's message, without Celery, as the document says it is sent to RabbitMQ.
OVER_AMQP = """
import json, os, time, urllib.parse
import amqp, redis

headers = json.loads('''{headers}''')
broker = urllib.parse.urlsplit(os.environ["RUNTURN_BROKER_URL"])
host = f"{{broker.hostname}}:{{broker.port}}"
with amqp.Connection(host, virtual_host=broker.path[1:], confirm_publish=True) as connection:
    message = amqp.Message(
        '''{body}''',
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=2,
        application_headers=headers,
    )
    connection.channel().basic_publish(message, routing_key="runturn")
results = redis.Redis.from_url(os.environ["RUNTURN_RESULT_URL"].replace("redis+socket", "unix"))
while not (answer := results.get(f"celery-task-meta-{{headers['id']}}")) or b"SUCCESS" not in answer:
    time.sleep(0.1)
print(json.loads(answer)["result"]["status"])
"""

# What a producer sees of tasks that have no result.
ENDS = """
import os

from celery import Celery

broker = os.environ["RUNTURN_BROKER_URL"]
app = Celery(broker=broker, backend=os.environ.get("RUNTURN_RESULT_URL", broker))
request = {"prompt": "What is in here?", "workspace": "/srv/checkout"}
for name, asked, options in (
    ("runturn.run_turn", {**request, "promt": ""}, {}),
    ("runturn.run_session", {"turn": request}, {}),
    ("runturn.no_such_task", request, {}),
    ("runturn.run_turn", request, {"serializer": "pickle"}),
    ("runturn.run_turn", request, {"expires": -1}),
):
    try:
        print(app.send_task(name, args=[asked], queue="runturn", **options).get(timeout=60))
    except Exception as failed:
        print(type(failed).__module__, type(failed).__name__, *failed.args[:2], sep=" | ")
"""
SEEN = r"""celery.exceptions | TurnFailed | invalid_request | promt: is not a known field; did you mean prompt\?
celery.exceptions | TurnFailed | invalid_request | .*needs test_commands .* or done_field.*
celery.exceptions | MessageRefused | there is no task 'runturn.no_such_task'
celery.exceptions | MessageRefused | the content type 'application/x-python-serialize' is not accepted; .*
celery.exceptions | TaskRevokedError | expired
"""


@pytest.fixture(scope="module", params=BROKERS)
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet on each of the brokers, whose agent is a stand-in for Claude Code."""
    root = tmp_path_factory.mktemp(request.param)
    claude = root / "claude"
    claude.write_text(CLAUDE)
    claude.chmod(0o755)
    with fleet_on(request.param, root, request, agent__command=str(claude)) as fleet:
        fleet.environment["ANTHROPIC_API_KEY"] = "none"
        fleet.start_worker()
        yield fleet


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with celery[redis]."""
    return plain_python(tmp_path_factory.mktemp("plain") / "venv", "celery[redis]")


def said_by(python: str | Path, program: str, fleet: Fleet, cwd: Path) -> str:
    urls = {"RUNTURN_BROKER_URL": fleet.environment.get("RUNTURN_BROKER_URL", fleet.broker.url)}
    if isinstance(fleet, RabbitFleet):
        urls["RUNTURN_RESULT_URL"] = fleet.environment["RUNTURN_RESULT_URL"]
    elif "import redis" in program:
        urls["RUNTURN_BROKER_URL"] = fleet.broker.url.replace("redis+socket", "unix")
    said = subprocess.run(
        [python, "-c", program.replace("/srv/checkout", str(fleet.workspace))],
        env={"PATH": os.environ["PATH"], **urls},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")
    return said.stdout


def over_amqp() -> str:
    headers, body = all_run_by("test_message_is_the_one_that_the_program_sends", "json")
    return OVER_AMQP.format(headers=headers, body=body)


def test_plain_python_has_nothing_of_runturn(plain: Path, tmp_path: Path) -> None:
    program = f"""
import importlib.util
import celery, redis
print([name for name in {NOT_THERE} if importlib.util.find_spec(name) is not None])
"""
    said = subprocess.run([plain, "-c", program], env={}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_program_runs(plain: Path, fleet: Fleet, block: Block, tmp_path: Path) -> None:
    program = block.text
    if "import redis" in program and isinstance(fleet, RabbitFleet):
        program = over_amqp()
    said = said_by(plain, program.replace("issue-4711", f"issue-{block.line}"), fleet, tmp_path)
    assert re.fullmatch(r"completed.*|invalid_workspace_cwd .* failed", said.rstrip("\n")), said


def test_turns_take_from_the_tasks_before_what_the_document_says(
    plain: Path, fleet: Fleet, tmp_path: Path
) -> None:
    (program,) = (block.text for block in PROGRAMS if "**after" in block.text)
    assert said_by(plain, program, fleet, tmp_path) == "completed completed\n"
    turns = [turn.turn_id for turn in fleet.ledger.reports.history(6)]
    text = fleet.result(turns[0]).text  # it is always the same
    requests = [fleet.ledger.reports.request(turn_id) for turn_id in turns]
    taken = {request.prompt.partition("\n")[0]: request for request in requests if request is not None}
    assert taken["Carry out this plan."].prompt == f"Carry out this plan.\n\n<result>\n{text}\n</result>"
    assert taken["Plan a release from these reports."].prompt.count(text) == 2
    assert taken["Now fix its tests."].session_id
    assert taken["Now fix its tests."].prompt == "Now fix its tests."


def test_producer_sees_how_tasks_end(plain: Path, fleet: Fleet, tmp_path: Path) -> None:
    assert re.fullmatch(SEEN.replace(" | ", r" \| "), said_by(plain, ENDS, fleet, tmp_path))


def test_program_with_the_client_runs(fleet: Fleet) -> None:
    (program,) = (text for text in all_run_by_this("test_program_with_the_client_runs"))
    assert said_by(sys.executable, program, fleet, ROOT) == "completed\n"


def test_every_program_says_that_it_runs_here() -> None:
    assert [block.text for block in PROGRAMS] == all_run_by_this(RUNS)


def all_run_by_this(test: str) -> list[str]:
    mark = f"tests/docs/test_plain_producers.py::{test}"
    return [block.text for block in page("docs/producers.md").blocks if mark in block.tested_by]

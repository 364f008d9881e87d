"""What docs/producers.md says is so: its message is taken, its programs run, its names are those of the code."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_result import SessionResult
from tests.docs.pages import ROOT, page
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.support.waiting import until
from workers.app import TASK
from workers.brokers.redis_transport import UNACKED
from workers.brokers.settings import QUEUE, events_exchange
from workers.events.bus import routing_key

CANVAS = ("Fix the parser.", "Check the parser.", "Read the API.", "Read the docs.", "Plan a release.")
DOCUMENT = page("docs/producers.md")


def all_run_by(test: str, language: str) -> list[str]:
    """The blocks in that language that say that this test runs them."""
    mark = f"tests/docs/test_producers.py::{test}"
    return [block.text for block in DOCUMENT.blocks if block.language == language and mark in block.tested_by]


def run_by(test: str, language: str) -> str:
    """The one block."""
    (text,) = all_run_by(test, language)
    return text


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ModelApi]]:
    """The real Claude Code, which says what it is to say."""
    answers = tuple(Reply((Text("A README."),), Usage(100, 20)) for _ in range(6))
    mended = (
        Reply((Text("I see nothing that is broken."),), Usage(100, 20)),
        Reply((replies.bash("touch mended"),), Usage(110, 21)),
        Reply((Text("Now it is mended."),), Usage(120, 25)),
    )
    scripts = (
        Script("producers", answers[:4], keyword="What is in here?"),
        Script("parts", answers[4:], keyword="Read part"),
        Script("mending", mended, keyword="Fix the build."),
        *(
            Script(f"canvas-{number}", (Reply((Text("A plan."),), Usage(100, 20)),), keyword=prompt)
            for number, prompt in enumerate(CANVAS)
        ),
    )
    with claude_fleet(tmp_path_factory.mktemp("producers"), *scripts) as fleet:
        yield fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet without a worker yet."""
    with Fleet(tmp_path) as fleet:
        yield fleet


def said_by(program: str, fleet: Fleet) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "RUNTURN_BROKER_URL": re.sub(r"^redis\+socket", "unix", fleet.broker.url)
        if "import redis" in program
        else fleet.broker.url,
        "RUNTURN_LEDGER_URL": fleet.state.ledger_url,
    }
    program = program.replace("/srv/checkout", str(fleet.workspace))
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    return said.stdout


def test_program_with_celery_runs(claude: tuple[Fleet, ModelApi]) -> None:
    fleet, _ = claude
    program = run_by("test_program_with_celery_runs", "python").replace("issue-4711", "issue-4712")
    assert re.fullmatch(r"completed A README\. 0\.\d+\n", said_by(program, fleet))
    assert fleet.ledger.reports.turn("issue-4712").labels == {"team": "web"}


def test_program_with_a_canvas_runs(claude: tuple[Fleet, ModelApi]) -> None:
    said = said_by(run_by("test_program_with_a_canvas_runs", "python"), claude[0])
    assert said == "completed A plan.\n"


def test_program_with_the_client_runs(claude: tuple[Fleet, ModelApi]) -> None:
    said = said_by(run_by("test_program_with_the_client_runs", "python"), claude[0])
    assert said.startswith("1 attempt_started\n2 session_started\n")
    assert re.fullmatch(r"completed A README\. 0\.\d+", said.splitlines()[-1])


@pytest.mark.parametrize(
    "test",
    [
        "test_program_with_a_canvas_runs",
        "test_program_with_celery_runs",
        "test_message_without_celery_is_run_and_answered",
    ],
)
def test_nobody_needs_runturn_to_produce(test: str) -> None:
    assert not re.search(r"^(from|import) (adapters|ops|remote|workers)", run_by(test, "python"), re.MULTILINE)


def test_message_without_celery_is_run_and_answered(claude: tuple[Fleet, ModelApi]) -> None:
    fleet, _ = claude
    program = run_by("test_message_without_celery_is_run_and_answered", "python")
    assert re.fullmatch(r"completed A README\. 0\.\d+\n", said_by(program, fleet))
    turn = fleet.ledger.reports.turn("issue-4711")
    assert (turn.labels, turn.attempts) == ({"team": "web"}, 1)
    assert said_by(program, fleet)  # sent again, it is answered again
    assert fleet.ledger.reports.turn("issue-4711").attempts == 1
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        until(lambda: not client.llen(QUEUE) and not client.hlen(UNACKED), "no message to be left")


def test_asyncio_program_runs(claude: tuple[Fleet, ModelApi]) -> None:
    said = said_by(run_by("test_asyncio_program_runs", "python"), claude[0]).splitlines()
    assert said[:2] == ["1 attempt_started", "2 session_started"]
    assert all(re.fullmatch(r"completed A README\. 0\.\d+", line) for line in said[-2:])


def test_transcript_program_runs(claude: tuple[Fleet, ModelApi]) -> None:
    said = said_by(run_by("test_transcript_program_runs", "python"), claude[0])
    assert re.fullmatch(r"A README\.\n\$0\.\d{4} · 120 tokens\n", said)


def test_session_program_runs(claude: tuple[Fleet, ModelApi]) -> None:
    """The real Claude Code leaves a test that fails, is told so, and mends it in the same session."""
    fleet, api = claude
    (fleet.workspace / "Makefile").write_text("test:\n\t@test -f mended || { echo it is broken; exit 1; }\n")
    said = said_by(run_by("test_session_program_runs", "python"), fleet)
    assert re.fullmatch(r"done tests_passed 2 0\.\d+", said.splitlines()[-1])
    assert said.index("**[Test:make test]** exit 2\n```\nit is broken") < said.index("**[Bash:touch mended]**")
    assert said.index("Now it is mended.") < said.index("**[Test:make test]** passed")
    first, second = (turn for turn in fleet.ledger.reports.history(2))
    assert first.session_id == second.session_id
    session = fleet.ledger.session_runs.find(first.turn_id.rpartition(".")[0])
    assert session is not None
    assert session.result is not None
    billed, booked = api.bill("mending").total, session.result.usage
    assert (booked.input_tokens, booked.output_tokens) == (billed.input, billed.output) == (330, 66)


def test_task_becomes_the_prompt_that_the_document_shows() -> None:
    name = "test_task_becomes_the_prompt_that_the_document_shows"
    request = TurnRequest.parse(json.loads(run_by(name, "json")))
    assert request.prompt == run_by(name, "markdown").rstrip("\n")


def test_session_result_has_all_fields() -> None:
    document = json.loads(run_by("test_session_result_has_all_fields", "json"))
    assert list(document) == list(SessionResult.model_fields)
    assert SessionResult.model_validate(document).model_dump(mode="json") == document


def test_message_is_the_one_that_the_program_sends() -> None:
    headers, body = map(json.loads, all_run_by("test_message_is_the_one_that_the_program_sends", "json"))
    sent = _message_of(run_by("test_message_without_celery_is_run_and_answered", "python"))
    assert sent["headers"] == headers
    assert json.loads(base64.b64decode(sent["body"])) == body
    assert headers["task"] == TASK
    assert TurnRequest.parse(body[0][0], turn_id=headers["id"]).turn_id == "issue-4711"


def test_result_has_all_fields() -> None:
    document = json.loads(run_by("test_result_has_all_fields", "json"))
    assert list(document) == list(TurnResult.model_fields)
    assert TurnResult.model_validate(document).model_dump(mode="json") == document


def _message_of(program: str) -> dict[str, Any]:
    """The message that the program builds, without running its rest."""
    lines = program.splitlines()
    building = [line for line in lines[: lines.index("}") + 1] if not line.startswith("broker =")]
    names: dict[str, Any] = {}
    exec("\n".join(building), names)
    return dict(names["message"])


def test_raw_events_are_where_the_document_says(fleet: Fleet) -> None:
    channel = "/0.runturn.events.fanout/turn.raw_one"
    assert channel.replace("turn.raw_one", "turn.ID") in DOCUMENT.text
    assert routing_key("raw.one") == "turn.raw_one"
    assert events_exchange("amqp://").name in DOCUMENT.text
    fleet.start_worker()
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client, client.pubsub() as subscription:
        subscription.subscribe(channel, "celery-task-meta-raw.one")
        fleet.run(fleet.recorded(RECORDINGS / "a_parallel_tools.jsonl", turn_id="raw.one"))
        received: list[dict[str, Any]] = []
        answers: list[dict[str, Any]] = []

        def complete() -> bool:
            message = subscription.get_message(ignore_subscribe_messages=True, timeout=0.1)
            if message is not None and message["channel"].decode() == channel:
                batch = json.loads(json.loads(message["data"])["body"])
                assert (batch["turn_id"], batch["first_seq"]) == ("raw.one", batch["events"][0]["seq"])
                received.extend(batch["events"])
            elif message is not None:
                answers.append(json.loads(message["data"]))
            settled = bool(received) and received[-1]["event"] == "turn_settled"
            return settled and bool(answers) and answers[-1]["status"] == "SUCCESS"

        until(complete, "all events and the answer")
    assert received == fleet.events("raw.one")
    assert TurnResult.model_validate(answers[-1]["result"]) == fleet.ledger.reports.result("raw.one")

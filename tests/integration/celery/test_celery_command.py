"""`celery -A workers.app`: each of its commands works for turns, or says what to use instead."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from celery.bin.celery import celery
from celery.worker.control import Panel

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status
from tests.docs.pages import page
from tests.integration.celery.test_pool import running
from tests.integration.turns.test_ends import hanging
from tests.support.brokers.node import Vhost
from tests.support.fleets.celery_commands import Said, run_all
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.places import RECORDINGS
from tests.support.waiting import until
from workers.app import QUEUE, create_app
from workers.celery_command import REFUSED
from workers.errors import TurnFailed

CELERY = Path(sys.executable).with_name("celery")
RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
SECRET = "this is not for the eyes of a monitor"
LONG = "of a prompt " * 20 + SECRET
# What workers say; the rest of their words are the next test's.
ANSWERS = {
    "status": "1 node online.",
    "inspect ping": "pong",
    "inspect active": "the first words",
    "inspect active_queues": "'name': 'runturn'",
    "inspect clock": '"clock":',
    "inspect conf": '"task_acks_late": true',
    "inspect memdump": "rss",
    "inspect memsample": "MB",
    "inspect query_task nobody": "{}",
    "inspect registered": "* runturn.run_turn",
    "inspect report": "software -> celery",
    "inspect reserved": "- empty -",
    "inspect revoked": "- empty -",
    "inspect scheduled": "- empty -",
    "inspect stats": '"max-concurrency": 3',
    "control disable_events": "task events already disabled",  # so Celery says; they go on
    "control enable_events": "task events already enabled",
    "control heartbeat": "OK",
    "graph workers": "digraph dependencies",
    "list bindings": "runturn                      runturn                      runturn",
    "report": "software -> celery",
    "shell --python": "(InteractiveConsole)",
    "upgrade settings /dev/null": "Does not seem to require any changes",
}
ERRORS = {
    "inspect objgraph": "Requires the objgraph library",
    "control add_consumer other": "the setting RUNTURN_QUEUES defines what workers consume",
    "control cancel_consumer runturn": "the setting RUNTURN_QUEUES defines what workers consume",
    "control rate_limit runturn.run_turn 1/m": "turns have no rate limits",
    "control autoscale 3 1": "Autoscale not enabled",
    "control pool_restart": "Pool restarts not enabled",
    "control election": "missing 2 required positional arguments",
}
REFUSALS = {
    **{name: REFUSED[name] for name in ("amqp", "flower", "purge", "worker")},
    "purge --force --queues runturn": REFUSED["purge"],
    "worker --detach": REFUSED["worker"],
    "multi start w1": REFUSED["multi"],
    "migrate redis://a redis://b": REFUSED["migrate"],
    "logtool stats file": REFUSED["logtool"],
    "amqp queue.purge runturn": REFUSED["amqp"],
    "graph bootsteps": REFUSED["worker"],
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """With one worker, and a turn that runs."""
    root = tmp_path_factory.mktemp("celery")
    with Fleet(root) as fleet:
        fleet.start_worker("--concurrency", "3")
        fleet.client.enqueue(endless(fleet, turn_id="runs", prompt="the first words " + LONG))
        running(fleet, "runs")
        yield fleet


def endless(fleet: Fleet, **fields: object) -> TurnRequest:
    recording = fleet.root / "endless.jsonl"
    return fleet.recorded(recording if recording.exists() else hanging(recording, 2), **fields)


def call(fleet: Fleet, **fields: object) -> str:
    """The command that sends a turn, which is called as its task then."""
    document = fleet.recorded(RECORDING, **fields).model_dump(mode="json", exclude_defaults=True)
    del document["turn_id"]
    return f"call runturn.run_turn --args {json.dumps([document])}"


@pytest.fixture(scope="module")
def said(fleet: Fleet) -> dict[str, Said]:
    """What the commands say."""
    return run_all(fleet.environment, [*ANSWERS, *ERRORS, *REFUSALS], wait_s=8.0)


@pytest.mark.parametrize("command", ANSWERS)
def test_command_is_answered(said: dict[str, Said], command: str) -> None:
    assert said[command].status == 0, said[command]
    assert ANSWERS[command] in said[command].text


@pytest.mark.parametrize("command", ERRORS)
def test_command_that_a_worker_does_not_obey_says_why(said: dict[str, Said], command: str) -> None:
    assert ERRORS[command] in said[command].text
    assert "ERROR" in said[command].text


@pytest.mark.parametrize("command", REFUSALS)
def test_command_that_is_not_for_turns_is_refused_in_one_sentence(
    fleet: Fleet, said: dict[str, Said], command: str
) -> None:
    assert said[command] == (2, f"Error: {REFUSALS[command]}\n")
    assert fleet.ledger.reports.turn("runs").state == "running"


def test_no_command_shows_more_than_the_first_words_of_a_prompt(said: dict[str, Said]) -> None:
    assert SECRET not in "".join(each.text for each in said.values())


def test_every_command_of_celery_is_in_the_table() -> None:
    text = page("docs/operating.md").text
    rows = text[text.index("| `celery -A workers.app") :].partition("\n\n")[0].splitlines()[2:]
    told: set[str] = set()
    for row in rows:
        first, *others = re.findall(r"`([^`]+)`", row.split("|")[1])
        told |= {f"{first} {each}" for each in others} if first in ("inspect", "control") else {first, *others}
    remote = {f"{meta.type} {name}" for name, meta in Panel.meta.items() if meta.visible}
    assert told == remote | set(celery.commands) - {"inspect", "control"}


def test_turn_is_called_and_its_result_shown(fleet: Fleet) -> None:
    called = run_all(fleet.environment, [call(fleet), 'call runturn.run_turn --args [{"prompt": "x"}]'])
    assert [each.status for each in called.values()] == [0, 0]
    good, bad = run_all(fleet.environment, [f"result {each.text.strip()}" for each in called.values()]).values()
    assert (good.status, "'status': 'completed'" in good.text) == (0, True)
    assert (bad.status, bad.text.splitlines()[-1].partition(":")[0]) == (1, f"{TurnFailed.__module__}.TurnFailed")


def test_events_are_dumped_without_prompts(fleet: Fleet, tmp_path: Path) -> None:
    """Also where Celery's command has sent the turn."""
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [CELERY, "-A", "workers.app", "events", "--dump"]
        watching = subprocess.Popen(command, env=fleet.environment, stdout=output, stderr=output)
    try:
        until(lambda: "heartbeat" in log.read_text(), "it to hear of the worker")
        (sent,) = run_all(fleet.environment, [call(fleet, prompt=LONG)]).values()
        until(lambda: f"task succeeded: runturn.run_turn({sent.text.strip()})" in log.read_text(), "the turn")
    finally:
        watching.kill()
        watching.wait()
    assert SECRET not in log.read_text()


def test_pool_grows_and_shrinks(fleet: Fleet) -> None:
    inspect = create_app(fleet.broker.url).control.inspect(timeout=60, limit=1)

    def size() -> int:
        ((_, stats),) = inspect.stats().items()
        return int(stats["pool"]["max-concurrency"])

    run_all(fleet.environment, ["control pool_grow 4", "control pool_shrink 2"])
    until(lambda: size() == 5, "the pool to have grown by 4, and shrunk by 2")
    run_all(fleet.environment, ["control pool_shrink 2"])
    until(lambda: size() == 3, "the pool to be as before")


def test_turns_are_revoked_and_terminated(fleet: Fleet) -> None:
    for name in ("second", "third"):
        fleet.client.enqueue(endless(fleet, turn_id=name))
        running(fleet, name)
    fleet.client.enqueue(endless(fleet, turn_id="waits"))
    run_all(fleet.environment, ["control revoke waits second"])
    assert fleet.result("waits").status is Status.CANCELLED
    run_all(fleet.environment, ["control terminate KILL third"])
    assert fleet.result("third").status is Status.CANCELLED
    assert fleet.ledger.reports.turn("second").state == "running"
    fleet.client.cancel("second")
    assert fleet.result("second").status is Status.CANCELLED


def test_time_limit_holds_for_turns_that_come_after(fleet: Fleet) -> None:
    run_all(fleet.environment, ["control time_limit runturn.run_turn 0.5 0.5"])
    app = Celery(broker=fleet.broker.url, set_as_current=False)
    document = endless(fleet, turn_id="limited", max_attempts=1).model_dump(mode="json", exclude_defaults=True)
    app.send_task("runturn.run_turn", [document], task_id="limited", queue=QUEUE, ignore_result=True)
    error = fleet.result("limited").error
    assert error is not None
    assert error.kind == "turn_timeout"


def test_shutdown_stops_the_worker(fleet: Fleet) -> None:
    """The last test of this worker."""
    run_all(fleet.environment, ["control shutdown"])
    assert fleet.workers[0].wait() == 0
    (said,) = run_all(fleet.environment, ["status"]).values()
    assert (said.status, said.text) == (69, "Error: No nodes replied within time constraint\n")


def test_refused_worker_consumes_nothing(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet, redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        fleet.client.enqueue(fleet.recorded(RECORDING))
        called = [CELERY, "-A", "workers.app", "worker"]
        files = (f"--pidfile={tmp_path}/%n", f"--logfile={tmp_path}/%n.log")  # elsewhere only root may write them
        python = f"--executable={shlex.quote(sys.executable)}"  # Celery does not quote it
        several = [CELERY, "multi", "start", "w1", "-A", "workers.app", python, *files]
        program = f"from workers.app import create_app; create_app({fleet.broker.url!r}).Worker().start()"
        for command in (called, several, [sys.executable, "-c", program]):
            done = subprocess.run(
                command, env=fleet.environment, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert f"{REFUSED['worker']}\n" in done.stderr
        assert client.llen(QUEUE) == 1


def test_nothing_is_started_to_find_out_that_nothing_runs(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    status, report = run_all(environment, ["status", "report"]).values()
    assert (status.status, report.status) == (69, 0)
    assert "Could not connect to the message broker" in status.text
    assert not list(tmp_path.rglob("*.sock"))


def test_bad_setting_is_told_in_one_sentence(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "RUNTURN_BROKER_URL": "pigeon://:hunter22@x"}
    (said,) = run_all(environment, ["status"]).values()
    assert said.status == 2
    assert re.fullmatch(r"Error: RUNTURN_BROKER_URL: broker_url: names no broker .*\n", said.text)
    assert "hunter22" not in said.text


def test_application_is_made_when_it_is_asked_for(tmp_path: Path) -> None:
    program = """
import sys, workers.app
assert "workers.configured_app" not in sys.modules
from ops.errors import SettingsError
try:
    workers.app.app
except SettingsError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(tmp_path), "RUNTURN_QUEUES": "[]"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith("RUNTURN_QUEUES: queues: ")


def test_command_for_another_application_is_not_refused(fleet: Fleet, tmp_path: Path) -> None:
    """Its module may make one of ours, to send turns."""
    (tmp_path / "company.py").write_text(
        "from celery import Celery\nfrom workers.app import create_app\n"
        f"app, turns = Celery('company', broker={fleet.broker.url!r}), create_app({fleet.broker.url!r})\n"
    )
    done = subprocess.run(
        [CELERY, "-A", "company", "purge", "-f"],
        env={**fleet.environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "No messages purged from 1 queue.\n")


def test_commands_work_on_rabbitmq_and_show_no_password(tmp_path: Path, vhost: Vhost) -> None:
    with RabbitFleet(tmp_path, vhost) as fleet:
        fleet.start_worker()
        sent = call(fleet)
        shown = ("report", "inspect conf", "inspect stats", "inspect report", "graph workers")
        commands = ["status", "inspect registered", "result ID", "purge", *shown, sent]
        said = run_all(fleet.environment, commands, wait_s=8.0)
        assert "1 node online." in said["status"].text
        assert "* runturn.run_turn" in said["inspect registered"].text
        assert (said["purge"].status, said["result ID"].status) == (2, 2)
        assert said["result ID"].text.endswith("use: runturn result ID\n")
        assert {said[name].status for name in shown} == {0}
        password = re.sub(r".*:(\S+)@.*", r"\1", vhost.url)
        assert not [name for name in shown if f":{password}@" in said[name].text]
        assert fleet.result(said[sent].text.strip()).status is Status.COMPLETED

"""Flower in a real browser: what it shows of turns, what it can do to them, and to whom."""

from __future__ import annotations

import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import redis
from celery import Celery
from flower.urls import handlers
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.integration.cli.conftest import Cli, cli
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.fleet import Fleet, slow_recording
from tests.support.fleets.flower_stage import USER, FlowerServer, chromium, flower
from tests.support.places import RECORDINGS
from tests.support.processes import gone_pid, of_turns
from tests.support.waiting import until
from workers.flower import read_password

__all__ = ["cli"]  # a fixture

KEY = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
SLOTS = 2
PAUSE_MS = 50


class Stage(NamedTuple):
    fleet: Fleet
    server: FlowerServer
    browser: Chrome
    recording: Path
    hanging: Path


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("flower")
    recording = RECORDINGS / "a_parallel_tools.jsonl"
    with Fleet(root) as fleet, flower(fleet) as server, chromium(root / "chromium") as browser:
        fleet.start_worker("--concurrency", str(SLOTS))
        browser.get(server.url)
        assert "Flower" not in browser.page_source
        browser.get(server.url_with_login)
        assert "Flower" in browser.page_source
        yield Stage(fleet, server, browser, recording, hanging(root / "hanging.jsonl", 5))


def state(stage: Stage, turn_id: str) -> str | None:
    told = stage.server.tasks().get(turn_id, {}).get("state")
    return str(told) if told else None


def listed(stage: Stage, turn_id: str) -> list[str]:
    """The cells of a turn's row on the page of all tasks."""
    stage.browser.get(f"{stage.server.url_with_login}/tasks")
    row = f"//table[@id='tasks-table']//tr[.//a[@title='{turn_id}']]/td"
    cells = until(lambda: stage.browser.find_elements(By.XPATH, row), f"the row of {turn_id}")
    return [cell.text for cell in cells]


def details(stage: Stage, turn_id: str) -> dict[str, str]:
    """What the page of one task says."""
    stage.browser.get(f"{stage.server.url_with_login}/task/{turn_id}")
    rows = stage.browser.find_elements(By.CSS_SELECTOR, "#task-page .detail-row")
    return {row.find_element(By.TAG_NAME, "dt").text: row.find_element(By.TAG_NAME, "dd").text for row in rows}


def is_red(stage: Stage, selector: str) -> bool:
    """The one element that is selected."""
    (badge,) = stage.browser.find_elements(By.CSS_SELECTOR, selector)
    red, green, blue = map(int, re.findall(r"\d+", badge.value_of_css_property("background-color"))[:3])
    return red > 2 * max(green, blue)


def test_turns_are_listed_with_name_state_arguments_result_and_runtime(stage: Stage) -> None:
    fleet = stage.fleet
    paused = slow_recording(stage.fleet.root / "paused.jsonl", stage.recording, PAUSE_MS)
    fleet.run(fleet.recorded(paused, prompt="count the\nfiles", host="local", turn_id="listed"))
    until(lambda: state(stage, "listed") == "SUCCESS", "the end, in Flower")
    name, turn_id, told, args, result, _, runtime, _ = listed(stage, "listed")
    assert (name, turn_id, told) == ("runturn.run_turn", "listed", "SUCCESS")
    assert args == "(scripted on local: count the files)"
    assert re.fullmatch(r"<completed 9540 tokens \$0\.\d{4}>", result)
    page = details(stage, "listed")
    assert (page["Arguments"], page["Keyword arguments"], page["Result"]) == (args, "{}", result)
    assert page["Worker"].startswith("runturn@")
    assert page["Runtime"] == runtime
    assert stage.server.tasks()["listed"]["runtime"] * 1000 >= paused.read_text().count("after_ms") * PAUSE_MS


def test_failed_turn_is_red_with_its_retries_its_kind_and_no_word_of_its_agent(stage: Stage) -> None:
    fleet = stage.fleet
    options = {"lines": [*stage.recording.read_text().splitlines()[:3], "its words"], "exit_code": 3}
    fleet.run(fleet.request(agent="scripted", options=options, max_attempts=2, turn_id="failing"))
    until(lambda: state(stage, "failing") == "FAILURE", "the end, in Flower")
    task = stage.server.tasks()["failing"]
    assert task["exception"] == "TurnFailed('port_exit')"
    assert task["retried"]
    page = details(stage, "failing")
    assert (page["Status"], page["Retries"]) == ("FAILURE", "1")
    assert "its words" not in str(page)
    assert is_red(stage, "#task-page .badge")
    assert listed(stage, "failing")[2] == "FAILURE"
    assert is_red(stage, "#tasks-table .text-bg-danger")


def test_clicking_terminate_ends_a_turn_that_runs_and_its_agent(stage: Stage) -> None:
    fleet = stage.fleet
    before = fleet.agents()
    fleet.client.enqueue(fleet.recorded(stage.hanging, turn_id="running"))
    until(lambda: state(stage, "running") == "STARTED", "the start, in Flower")
    (agent,) = until(lambda: fleet.agents() - before, "its agent")
    assert details(stage, "running")["Status"] == "STARTED"
    stage.browser.find_element(By.ID, "task-terminate").click()
    result = fleet.result("running")
    assert (result.status, result.error and result.error.kind) == ("cancelled", "turn_cancelled")
    until(lambda: gone_pid(agent), "the end of the agent")
    fleet.assert_nothing_left()
    until(lambda: state(stage, "running") == "REVOKED", "the end, in Flower")
    assert details(stage, "running")["Status"] == "REVOKED"


def test_clicking_revoke_ends_a_turn_that_waits_and_no_other(stage: Stage) -> None:
    fleet = stage.fleet
    running = [fleet.client.enqueue(fleet.recorded(stage.hanging, turn_id=f"busy{n}")) for n in range(SLOTS)]
    until(lambda: all(state(stage, turn_id) == "STARTED" for turn_id in running), "a worker without room")
    fleet.client.enqueue(fleet.recorded(stage.recording, turn_id="waiting"))
    until(lambda: state(stage, "waiting") == "RECEIVED", "the turn, in Flower")
    assert listed(stage, "waiting")[2:4] == ["RECEIVED", "(scripted on any host: do it)"]
    assert details(stage, "waiting")["Status"] == "RECEIVED"
    stage.browser.find_element(By.ID, "task-revoke").click()
    result = fleet.result("waiting")
    assert (result.status, result.attempts) == ("cancelled", 0)
    until(lambda: state(stage, "waiting") == "REVOKED", "the end, in Flower")
    assert len(of_turns(fleet.state.spool)) > 0
    for turn_id in running:
        assert state(stage, turn_id) == "STARTED"
        stage.server.ask(f"/api/task/revoke/{turn_id}", "POST", terminate="true")
        assert fleet.result(turn_id).status == "cancelled"
    fleet.assert_nothing_left()


def test_what_a_producer_would_show_of_its_request_is_not_shown(stage: Stage) -> None:
    """Celery's own client puts the whole request beside it, and tells it to monitors, too."""
    fleet = stage.fleet
    app = Celery(broker=fleet.broker.url, set_as_current=False)
    app.conf.task_send_sent_event = True
    request = {
        "prompt": f"push with {KEY}, then say hello to everybody who is there, at length, and in {'x' * 50} words",
        "workspace": str(fleet.workspace),
        "agent": "scripted",
        "options": {"recording": str(stage.recording)},
    }
    app.send_task("runturn.run_turn", [request], task_id="theirs", queue="runturn", shadow=f"secretly {KEY}")
    app.close()
    until(lambda: fleet.ledger.reports.result("theirs"), "the result")
    until(lambda: state(stage, "theirs") == "SUCCESS", "the end, in Flower")
    task = stage.server.tasks()["theirs"]
    assert task["sent"]  # it was told
    assert (task["name"], task["kwargs"]) == ("secretly [redacted:key]", "{}")
    assert task["args"].startswith("(scripted on any host: push with [redacted:key], then say hello")
    assert task["args"].endswith("…)")
    assert len(task["args"]) < 120


def test_pages_need_nothing_from_elsewhere(stage: Stage) -> None:
    stage.browser.get_log("browser")  # type: ignore[no-untyped-call]  # forget what was
    loaded = "return performance.getEntriesByType('resource').map(each => [each.name, each.responseStatus])"
    for page in ("/workers", "/tasks", "/task/listed", "/broker"):
        stage.browser.get(f"{stage.server.url_with_login}{page}")
        for name, status in stage.browser.execute_script(loaded):  # type: ignore[no-untyped-call]
            assert (name.replace(f"{USER}:{stage.server.password}@", "").startswith(stage.server.url), status) == (
                True,
                200,
            ), name
    assert [entry for entry in stage.browser.get_log("browser") if entry["level"] == "SEVERE"] == []  # type: ignore[no-untyped-call]


def test_durations_of_long_turns_are_told_apart(stage: Stage) -> None:
    metrics = stage.server.ask("/metrics").body.decode()
    bounds = re.findall(r'flower_task_runtime_seconds_bucket\{le="([^"]+)",task="runturn.run_turn"', metrics)
    assert bounds[0] == "1.0"
    assert bounds[-2:] == ["7200.0", "+Inf"]


def routes() -> list[str]:
    """A path for each route of Flower, and some that it does not have."""
    patterns = [route.regex.pattern if hasattr(route, "regex") else route[0] for route in handlers]
    paths = {re.sub(r"\(\.[+*]\)|\.\*", "x", pattern).replace("/?", "").rstrip("$") for pattern in patterns}
    return sorted({*(path if path.startswith("/") else f"/{path}" for path in paths), "/static/js/flower.js"})


def test_nothing_answers_without_the_login(stage: Stage) -> None:
    assert len(routes()) > 30
    for path in routes():
        for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE"):
            answer = stage.server.ask(path, method, login="")
            assert (answer.status, answer.body) == (401, b"" if method == "HEAD" else b"log in\n"), (method, path)
            assert "Set-Cookie" not in answer.headers
    password = stage.server.password
    for login in (f"{USER}:", f"{USER}:{password}x", f":{password}", f"admin:{password}", "ü:ü", "nonsense"):
        assert stage.server.ask("/tasks", login=login).status == 401
    assert stage.server.ask("/tasks").status == 200


def test_results_are_not_told_in_full(stage: Stage) -> None:
    """Whoever may read them has the ledger, or the result backend."""
    assert stage.server.ask("/api/task/result/listed").status == 503


def test_password_is_its_owners_alone_and_nowhere_else(stage: Stage) -> None:
    file = stage.fleet.state.root / "flower-password"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    process = psutil.Process(stage.server.process.pid)
    shown = [stage.server.log.read_text(), *process.cmdline(), *process.environ().values()]
    assert not [text for text in shown if stage.server.password in text]


def test_it_listens_on_loopback_only(stage: Stage) -> None:
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(stage.server.process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_told_to_go_it_leaves_nothing_in_the_broker(stage: Stage) -> None:
    assert stage.server.stop() == 0
    with redis.Redis(unix_socket_path=str(stage.fleet.broker.socket)) as client:
        assert client.keys("*celeryev*") == []
    assert sorted(path.name for path in stage.fleet.workspace.iterdir()) == []


def test_port_that_is_taken_is_named(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = cli("flower", "--port", str(taken.getsockname()[1]))
    assert said.status == 2
    assert "Flower cannot listen on 127.0.0.1:" in said.err


def test_password_file_that_cannot_be_used_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, problem in (("empty", "is empty"), ("missing", "cannot be read")):
        said = cli("flower", "--password-file", str(tmp_path / name))
        assert (said.status, problem in said.err, name in said.err) == (2, True, True)


@pytest.mark.parametrize("theirs", [None, "of-the-other"])
def test_new_password_is_seen_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str | None
) -> None:
    """Another Flower that is started at the same moment reads it, or is faster."""
    file = tmp_path / "password"

    def made_up(_: int) -> str:
        assert not file.exists()
        if theirs:
            file.write_text(f"{theirs}\n")
        return "of-this-one"

    monkeypatch.setattr("workers.flower.secrets.token_urlsafe", made_up)
    assert read_password(file, make=True) == (theirs or "of-this-one") == file.read_text().strip()
    assert list(tmp_path.iterdir()) == [file]


def test_missing_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "workers.flower", None)
    said = cli("flower")
    assert said.status == 2
    assert "install runturn[flower]" in said.err

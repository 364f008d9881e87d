"""The whole stack, really running: every process answers, sees the others, and is gone in the end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from adapters.protocol.result import Status, TurnResult
from tests.docs.pages import page
from tests.support.needs import missing, need
from tests.support.places import ROOT
from tests.support.waiting import until
from tests.tools.stack import turns
from tests.tools.stack.stack import HOST, PROGRAMS, WORKERS, Stack, needed

TURNS = 6

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Where everything has to lie that the stack makes. In the end it is empty, and no process knows it."""
    for program in PROGRAMS:
        need(program)
    if packages := needed():
        missing(f"not installed: {', '.join(packages)}")
    with tempfile.TemporaryDirectory(prefix="rt-") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", None)
        Path(directory).chmod(0o755)  # PostgreSQL is somebody else
        yield Path(directory)
        until(lambda: not _processes(directory), f"the end of {_processes(directory)}")
        assert list(Path(directory).iterdir()) == []


@pytest.fixture(scope="module")
def stack(temporary: Path) -> Iterator[Stack]:
    with Stack(scrape_interval_s=1) as stack:
        yield stack


@pytest.fixture(scope="module")
def results(stack: Stack) -> list[TurnResult]:
    """Of some turns: they have ended."""
    client = turns.client_of(stack)
    return [client.result(turn_id, 120) for turn_id in turns.queue(stack, TURNS)]


def test_turns_run_on_the_ssh_host_and_where_they_ask_for(results: list[TurnResult]) -> None:
    assert [result.status for result in results] == [Status.COMPLETED] * (TURNS - 1) + [Status.FAILED]
    assert [result.host for result in results] == [HOST, HOST, HOST, WORKERS[0], HOST, HOST]


def test_prometheus_reaches_every_target(stack: Stack) -> None:
    expected = {"runturn-worker": 2, "runturn-exporter": 1, "flower": 1, "prometheus": 1}
    up = {job: ["up"] * count for job, count in expected.items()}
    until(lambda: stack.prometheus.targets() == up, f"all targets: {stack.prometheus.targets()}")


def test_every_job_brings_its_data(stack: Stack, results: list[TurnResult]) -> None:
    for query in (
        'sum(runturn_turns_total{job="runturn-worker"})',
        'sum(runturn_settled_turns_total{job="runturn-exporter"})',
        'sum(flower_events_total{job="flower",type="task-received"})',
    ):
        until(lambda query=query: _value(stack, query) == len(results), query)  # type: ignore[misc]
    seconds = 'sum(runturn_turn_duration_seconds_sum{job="runturn-worker"})'
    assert (_value(stack, seconds) or 0) > 0
    assert (_value(stack, f'sum(runturn_ssh_connects_total{{host="{HOST}",outcome="ok"}})') or 0) > 0


def test_money_and_tokens_in_prometheus_are_those_of_the_books(stack: Stack, results: list[TurnResult]) -> None:
    rows = json.loads(stack.command("cost", "--by", "model", "--json").stdout)
    tokens = sum(sum(row["spent"]["tokens"].values()) for row in rows)
    cost = sum(row["spent"]["cost_usd"] or 0 for row in rows)
    assert tokens == sum(_tokens(result) for result in results) > 0
    until(lambda: _value(stack, "sum(runturn_tokens_total)") == tokens, "the tokens")
    assert _value(stack, "sum(runturn_cost_usd_total)") == pytest.approx(cost)


def test_queries_of_getting_started_bring_data(stack: Stack, results: list[TurnResult]) -> None:
    blocks = [block for block in page("docs/getting-started.md").blocks if block.language == "promql"]
    assert blocks
    for query in (line for block in blocks for line in block.text.splitlines()):
        until(lambda query=query: _value(stack, query) is not None, query)  # type: ignore[misc]


def test_all_rules_are_loaded_and_a_healthy_fleet_sets_none_off(stack: Stack, results: list[TurnResult]) -> None:
    assert "RunturnNoWorker" in stack.prometheus.rules()
    until(lambda: _value(stack, "count(up == 1)") == 5, "all targets")
    # Before the first scrape there was no worker, as far as anybody knew: one alert was pending, and goes.
    until(lambda: stack.prometheus.alerts() == {}, "no alert")


@pytest.mark.parametrize(("name", "port"), [("worker1", 9477), ("exporter", 9477), ("flower", 5555)])
def test_health_checks_of_compose_find_a_healthy_process_healthy(stack: Stack, name: str, port: int) -> None:
    program = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"][name]["healthcheck"]["test"][-1]
    here = program.replace("/run/secrets", str(stack.secrets)).replace(
        f"http://127.0.0.1:{port}", stack.urls[name]
    )
    assert str(port) not in here.replace(stack.urls[name], "")
    subprocess.run([sys.executable, "-c", here], check=True, timeout=60)
    gone = here.replace(stack.urls[name], "http://127.0.0.1:1")
    assert subprocess.run([sys.executable, "-c", gone], check=False, capture_output=True, timeout=60).returncode


def test_flower_lists_the_tasks_behind_its_login(stack: Stack, results: list[TurnResult]) -> None:
    def tasks() -> dict[str, dict[str, str]]:
        request = urllib.request.Request(f"{stack.urls['flower']}/api/tasks", headers=stack.flower_login)
        with urllib.request.urlopen(request, timeout=60) as response:
            return dict(json.load(response))

    until(lambda: tasks().keys() == {result.turn_id for result in results}, "the tasks")
    assert {task["name"] for task in tasks().values()} == {"runturn.run_turn"}
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{stack.urls['flower']}/api/tasks", timeout=60)


def test_transcripts_of_all_workers_are_in_one_place(stack: Stack, results: list[TurnResult]) -> None:
    def kept() -> set[str]:
        files = [str(path) for path in (stack.root / "transcripts").rglob("*") if path.is_file()]
        return {result.turn_id for result in results if any(result.turn_id in file for file in files)}

    until(lambda: len(kept()) == len(results), "the transcripts")
    assert stack.command("transcript", results[0].turn_id).returncode == 0


def test_no_log_holds_a_secret(stack: Stack, results: list[TurnResult]) -> None:
    broker = (stack.secrets / "runturn_broker_url").read_text()
    password = broker.split(":")[2].split("@")[0]
    for log in stack.logs.iterdir():
        text = log.read_text(errors="replace")
        assert password not in text and stack.flower_password not in text, log.name


def test_make_stack_says_where_to_look_and_ends_with_ctrl_c(temporary: Path) -> None:
    command = [sys.executable, "-m", "tests.tools.stack", "--turns", "1"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    said = temporary / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        until(lambda: "has their data" in said.read_text() or process.poll() is not None, "a turn")
        assert process.poll() is None, said.read_text()
        (source,) = (line for line in said.read_text().splitlines() if line.startswith("  source "))
        asking = f"{source}; exec {shlex.quote(sys.executable)} -m workers history --json"
        listed = subprocess.run(["bash", "-c", asking], cwd=ROOT, check=True, capture_output=True, timeout=60)
        assert len(json.loads(listed.stdout)) == 1
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)
    assert process.returncode == 0
    text = said.read_text()
    said.unlink()
    assert "The stack is running" in text and "/alerts" in text and "flower_password" in text
    assert text.endswith("everything has stopped\n")


def _value(stack: Stack, query: str) -> float | None:
    found = stack.prometheus.query(query)
    return found[0][1] if found else None


def _tokens(result: TurnResult) -> int:
    used = result.usage
    return used.input_tokens + used.output_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens


def _processes(directory: str) -> list[str]:
    """Those of the stack: they were told of its directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and any(
                directory in word for word in (*process.cmdline(), *process.environ().values())
            ):
                found.append(" ".join(process.cmdline())[:100])
        except (psutil.Error, OSError):
            continue
    return found

"""celery-exporter beside a worker: what it counts of turns, for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.integration.instruments.exporter import exporter, exporter_python
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.fleet import Fleet, slow_recording
from tests.support.pages import Samples, scrape
from tests.support.places import RECORDINGS
from tests.support.waiting import until

TEST = "tests/integration/instruments/test_celery_exporter.py::test_turns_are_counted_by_how_they_ended"
RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
PAUSE_S = 0.1


class Exported(NamedTuple):
    fleet: Fleet
    url: str
    log: Path

    def sum(self, name: str) -> float:
        """Of all samples of that name."""
        try:
            return total(scrape(self.url), name)
        except HTTPError as error:
            raise AssertionError(f"{error}: {self.log.read_text()[-5000:]}") from error


def total(samples: Samples, metric: str, /, **labels: str) -> float:
    return sum(value for (known, has), value in samples.items() if known == metric and labels.items() <= set(has))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    root = tmp_path_factory.mktemp("exported")
    with Fleet(root) as fleet, exporter(TEST, fleet.broker.url, log := fleet.state.logs / "exporter.log") as url:
        fleet.start_worker()
        exported = Exported(fleet, url, log)
        until(lambda: exported.sum("celery_worker_up") == 1, "the exporter to hear of the worker")
        yield exported


def test_turns_are_counted_by_how_they_ended(exported: Exported, tmp_path: Path) -> None:
    fleet, url, _ = exported
    recording = slow_recording(tmp_path / "slow.jsonl", RECORDING, int(PAUSE_S * 1000))
    fleet.run(fleet.recorded(recording))
    failing = {"lines": [*RECORDING.read_text().splitlines()[:3], "its words"], "exit_code": 3}
    fleet.run(fleet.request(agent="scripted", options=failing, max_attempts=2))
    cancelled = fleet.client.enqueue(fleet.recorded(hanging(tmp_path / "hanging.jsonl", 5)))
    until(lambda: len(fleet.events(cancelled)) > 1, "its agent")
    fleet.client.cancel(cancelled)
    fleet.result(cancelled)
    until(lambda: exported.sum("celery_task_revoked_total"), "the end to be counted")
    samples = scrape(url)
    of_turns = {"name": "runturn.run_turn"}
    counted = {
        name: total(samples, f"celery_task_{name}_total", **of_turns)
        for name in ("sent", "received", "started", "succeeded", "failed", "retried", "revoked", "rejected")
    }
    assert counted == {
        "sent": 3,
        "received": 3,
        "started": 4,
        "succeeded": 1,
        "failed": 1,
        "retried": 1,
        "revoked": 1,
        "rejected": 0,
    }
    assert total(samples, "celery_task_failed_total", exception="TurnFailed", queue_name="runturn") == 1
    assert total(samples, "celery_task_runtime_count", **of_turns) == 1
    pauses = recording.read_text().count("after_ms")
    assert total(samples, "celery_task_runtime_sum", **of_turns) >= PAUSE_S * pauses
    assert total(samples, "celery_task_runtime_bucket", le="7200.0", **of_turns) == 1


@pytest.mark.parametrize("version", ["3.11.2", "3.11.14", "3.12.3", "3.13.5"])
def test_lock_has_what_the_packages_need_on_each_python(version: str) -> None:
    """It is installed without dependencies, and a missing one shows only as an answer that never comes."""
    lock = (Path(__file__).parent / "celery-exporter.lock").read_text()
    locked = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    python = {"python_full_version": version, "python_version": version.rpartition(".")[0], "extra": ""}
    (packages,) = exporter_python().parent.parent.glob("lib/python3.*/site-packages")
    required = [Requirement(text) for each in distributions(path=[str(packages)]) for text in each.requires or ()]
    needed = {canonicalize_name(each.name) for each in required if not each.marker or each.marker.evaluate(python)}
    assert not needed - locked

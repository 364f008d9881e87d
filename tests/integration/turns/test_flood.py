"""An agent that prints millions of lines: its turn ends as it would have, and the ledger keeps little of them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from adapters.protocol.result import Status
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.places import RECORDINGS
from tests.support.ssh.ssh_host import Gate, ssh_host, ssh_hosts
from tests.support.waiting import until
from workers.events.limit import EVENT_LIMIT, MAX_MALFORMED

RECORDING = (RECORDINGS / "a_parallel_tools.jsonl").read_text().splitlines()
BEFORE = 3  # lines of the recording, and the others after the flood
FLOODS = {"local": 10_000_000, "h1": 1_000_000}  # lines of two bytes
PART = 300_000  # likewise; some before the gate opens, some after

AGENT = """#!/bin/sh
case $1 in --version) echo '2.1.330 (Claude Code)'; exit ;; esac
prompt=$(cat)
flood() { yes x | head -n "$1"; }
head -n BEFORE RECORDING
case $prompt in
flood*) flood "${prompt#flood }" ;;
gate) flood PART; WAIT; flood PART ;;
esac
tail -n +AFTER RECORDING
"""

PLACES = ("local", "h1")


@dataclass
class Place:
    """A fleet with one worker, for the agent on this machine and over SSH."""

    fleet: Fleet
    gate: Gate
    worker: Worker

    def undisturbed(self, host: str) -> list[str]:
        """What the same agent's events are without a flood."""
        return names(self.fleet.events(self.fleet.run(self.fleet.request("nothing", host=host)).turn_id))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("flood")
    with ssh_host("h1", root) as login:
        gate = Gate(root / "gate")
        recording = root / "recording"
        recording.write_text("\n".join(RECORDING) + "\n")
        script = AGENT.replace("RECORDING", f"'{recording}'").replace("WAIT", gate.wait)
        for word, number in {"BEFORE": BEFORE, "AFTER": BEFORE + 1, "PART": PART}.items():
            script = script.replace(word, str(number))
        agent = str(login.program("agent", script))
        hosts = ssh_hosts(login.setting(agents={"claude-code": agent}))
        environment = {"PATH": os.environ["PATH"], "HOME": str(root)}
        agents = json.dumps({"claude-code": {"command": agent}})
        with Fleet(root, environment, ssh_hosts=hosts, agents=agents) as fleet:
            yield Place(fleet, gate, fleet.start_worker())


@pytest.mark.timeout(400)
@pytest.mark.parametrize("host", PLACES)
def test_twenty_megabytes_of_unreadable_lines_are_a_hundred_events_and_a_count(place: Place, host: str) -> None:
    usual = place.undisturbed(host)

    turn_id = place.fleet.client.enqueue(place.fleet.request(f"flood {FLOODS[host]}", host=host))
    live = list(place.fleet.client.events(turn_id))
    result = place.fleet.client.result(turn_id, 10)

    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "Done both.", 1)
    assert result.usage_complete
    stored = place.fleet.events(turn_id)
    assert live == stored
    assert [event["seq"] for event in stored] == list(range(1, len(stored) + 1))
    assert_flooded(stored, usual, FLOODS[host])
    assert sum(len(line) for _, line in place.fleet.ledger.events.after(turn_id)) < 50_000


def test_gap_is_shown_where_it_is(place: Place) -> None:
    place.gate.open()
    turn_id = place.fleet.run(place.fleet.request("gate", host="local")).turn_id
    place.gate.close()

    missing = f"{2 * PART - MAX_MALFORMED:,}"
    watched = place.fleet.command("watch", turn_id)
    assert f"the agent printed too much; events dropped: {missing} malformed" in watched.stderr + watched.stdout
    read = place.fleet.command("watch", turn_id, "--format", "markdown")
    assert f"The agent printed too much: {missing} events are missing here." in read.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("host", PLACES)
def test_worker_that_takes_over_amid_a_flood_numbers_and_counts_the_same(place: Place, host: str) -> None:
    usual = place.undisturbed(host)
    turn_id = place.fleet.client.enqueue(place.fleet.request("gate", host=host))
    until(lambda: "notification" in names(place.fleet.events(turn_id)), "the first dropped event")
    seen = place.fleet.events(turn_id)

    place.worker.kill()
    place.worker = place.fleet.start_worker()
    place.gate.open()
    result = place.fleet.result(turn_id)
    place.gate.close()

    assert (result.status, result.attempts) == (Status.COMPLETED, 1)
    stored = place.fleet.events(turn_id)
    assert stored[: len(seen)] == seen
    assert [event["seq"] for event in stored] == list(range(1, len(stored) + 1))
    assert_flooded(stored, usual, 2 * PART)


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def assert_flooded(events: list[dict[str, Any]], usual: list[str], lines: int) -> None:
    """Besides the usual events, there are a sample of the flood, a notice, and one event that tells the rest."""
    added = Counter(names(events)) - Counter(usual)
    assert added == {"malformed": MAX_MALFORMED, "notification": 1, "events_dropped": 1}
    others = ("malformed", "notification", "events_dropped")
    assert [name for name in names(events) if name not in others] == [name for name in usual if name not in others]
    (notice,) = (event for event in events if event.get("topic") == EVENT_LIMIT)
    assert names(events)[notice["seq"] - 2] == "malformed"
    (told,) = (event for event in events if event["event"] == "events_dropped")
    missing = lines - MAX_MALFORMED
    assert (told["count"], told["by_event"]) == (missing, {"malformed": missing})
    assert names(events)[told["seq"] :] == ["attempt_ended", "turn_settled"]

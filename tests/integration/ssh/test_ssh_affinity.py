"""Which host a turn goes to: where its session is, where it asks to go, or where there is one that answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import ErrorInfo, Status, TurnResult
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.support.ssh.ssh_host import Gate, assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import lines_of, until

RECORDING = (RECORDINGS / "a_parallel_tools.jsonl").read_text()
RECORDED_SESSION = json.loads(RECORDING.partition("\n")[0])["session_id"]
COUNTED = '#!/bin/sh\necho started >>"$0.log"\n{wait}\nexec awk "$@"\n'


def counted(login: Login, gate: Gate | None = None) -> dict[str, str]:
    """An agent that leaves a line for each of its starts, for `agents` of a host."""
    return {"scripted": str(login.program("agent", COUNTED.format(wait=gate.wait if gate else "")))}


def starts(login: Login) -> int:
    """How often that was started."""
    return len(lines_of(login.folder / "agent.log"))


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet with one worker and two hosts."""

    fleet: Fleet
    h1: Login
    h2: Login

    def run(self, session: str | None = None, **fields: Any) -> TurnResult:
        """A turn whose agent tells of this session, or of a new one."""
        lines = RECORDING.replace(RECORDED_SESSION, session or str(uuid.uuid4())).splitlines()
        return self.fleet.run(self.fleet.request(agent="scripted", options={"lines": lines}, **fields))

    def resume(self, first: TurnResult, **fields: Any) -> TurnResult:
        """A turn that goes on in the session of another one."""
        return self.run(first.session_id, session_id=first.session_id, **fields)

    def refused(self, **fields: Any) -> ErrorInfo:
        """Why a turn is refused before anything is started for it."""
        before = starts(self.h1), starts(self.h2)
        result = self.run(**fields)
        assert result.error is not None
        assert (result.status, result.attempts, result.host) == (Status.FAILED, 0, None)
        assert (starts(self.h1), starts(self.h2)) == before
        return result.error


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("affinity")
    with ssh_host("h1", root) as h1, ssh_host("h2", root) as h2:
        hosts = ssh_hosts(
            h1.setting(agents=counted(h1), labels={"gpu": "yes", "zone": "a"}),
            h2.setting(agents=counted(h2), labels={"zone": "b"}),
        )
        with Fleet(root, ssh_hosts=hosts) as fleet:
            fleet.start_worker()
            yield Place(fleet, h1, h2)


# -- sessions


@pytest.mark.parametrize("home", ["h1", "h2"])
def test_session_is_resumed_on_its_host_without_the_request_naming_it(place: Place, home: str) -> None:
    first = place.run(host=home)
    later = [place.resume(first) for _ in range(3)]
    assert {(result.status, result.host) for result in (first, *later)} == {(Status.COMPLETED, home)}
    assert {result.session_id for result in later} == {first.session_id}


@pytest.mark.parametrize("elsewhere", [{"host": "h1"}, {"host": "local"}, {"host_labels": {"zone": "a"}}])
def test_session_is_not_found_on_another_host(place: Place, elsewhere: dict[str, Any]) -> None:
    first = place.run(host="h2")
    error = place.refused(session_id=first.session_id, **elsewhere)
    assert error.kind == "session_not_found"
    assert "on host h2" in error.message


def test_session_is_not_found_in_another_workspace(place: Place, tmp_path: Path) -> None:
    first = place.run(host="h2")
    error = place.refused(session_id=first.session_id, workspace=str(tmp_path))
    assert error.kind == "session_not_found"
    assert f"in workspace {place.fleet.workspace} on host h2" in error.message


def test_unknown_session_is_not_found(place: Place) -> None:
    error = place.refused(session_id="793003ef-e365-4309-9088-dbcd3765d527")
    assert error.kind == "session_not_found"
    assert "there is no session 793003ef-e365-4309-9088-dbcd3765d527" in error.message


# -- wishes


@pytest.mark.parametrize(
    ("labels", "host"), [({"zone": "b"}, "h2"), ({"zone": "a"}, "h1"), ({"gpu": "yes", "zone": "a"}, "h1")]
)
def test_labels_choose_the_host(place: Place, labels: dict[str, str], host: str) -> None:
    assert place.run(host_labels=labels).host == host


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"host": "h3"}, "host: there is no host 'h3'; known: h1, h2, local"),
        ({"host_labels": {"zone": "c"}}, "host_labels: no host has all of these labels; configured: "),
        ({"host_labels": {"gpu": "yes", "zone": "b"}}, "h1 (gpu=yes, zone=a); h2 (zone=b)"),
        ({"host": "h2", "host_labels": {"gpu": "yes"}}, "host_labels: host h2 lacks some of these labels; "),
    ],
)
def test_wish_that_no_host_fulfils_is_refused_and_says_what_there_is(
    place: Place, wish: dict[str, Any], says: str
) -> None:
    error = place.refused(**wish)
    assert error.kind == "invalid_request"
    assert says in error.message


def test_turn_without_a_wish_goes_over_ssh_and_one_for_the_local_host_does_not(place: Place) -> None:
    before = starts(place.h1) + starts(place.h2)
    assert place.run().host in {"h1", "h2"}
    assert starts(place.h1) + starts(place.h2) == before + 1
    assert (place.run(host="local").host, place.run(host="local").status) == ("local", Status.COMPLETED)
    assert starts(place.h1) + starts(place.h2) == before + 1


def test_nothing_of_all_this_is_left(place: Place) -> None:
    place.fleet.assert_nothing_left()
    for login in (place.h1, place.h2):
        assert_nothing_left(login)


# -- hosts that do not answer


def test_turns_keep_away_from_a_host_that_refuses_us_even_if_it_has_more_room(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with ExitStack() as stack:
        closed, up = (stack.enter_context(ssh_host(name, tmp_path)) for name in ("closed", "up"))
        closed.sshd.authorized_keys.write_text("")
        hosts = ssh_hosts(closed.setting(agents=counted(closed)), up.setting(agents=counted(up, gate)))
        fleet = stack.enter_context(Fleet(tmp_path, ssh_hosts=hosts))
        fleet.start_worker()
        refused = fleet.run(fleet.recorded(RECORDINGS / "a_parallel_tools.jsonl", host="closed"))
        assert refused.error is not None
        assert refused.error.kind == "host_auth_failed"
        turns = [fleet.client.enqueue(fleet.recorded(RECORDINGS / "a_parallel_tools.jsonl")) for _ in range(3)]
        until(lambda: starts(up) == 3, "three agents on the host that lets us in")
        gate.open()
        results = [fleet.result(turn_id) for turn_id in turns]
        assert {(result.status, result.host, result.attempts) for result in results} == {
            (Status.COMPLETED, "up", 1)
        }
        assert starts(closed) == 0


def left_alone(fleet: Fleet, host: str) -> bool:
    """Whether a worker's log says so of a host."""
    logs = (path.read_text() for path in fleet.state.logs.glob("worker-*"))
    return any(f"host {host} is avoided for" in log for log in logs)


def test_turn_that_met_a_host_that_is_down_goes_to_the_other_and_new_ones_go_there_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        down, up = (stack.enter_context(ssh_host(name, tmp_path)) for name in ("down", "up"))
        down.sshd.stop()
        hosts = ssh_hosts(*(login.setting(agents=counted(login)) for login in (down, up)))
        fleet = stack.enter_context(Fleet(tmp_path, ssh_hosts=hosts))
        fleet.start_worker()
        request = fleet.recorded(RECORDINGS / "a_parallel_tools.jsonl")
        met = fleet.client.enqueue(request)
        until(lambda: left_alone(fleet, "down"), "the worker to notice")
        new = [fleet.run(request.model_copy(update={"turn_id": f"new-{number}"})) for number in range(4)]
        assert {(result.host, result.attempts) for result in new} == {("up", 1)}
        result = fleet.result(met)
        assert (result.status, result.host) == (Status.COMPLETED, "up")
        ended = [event["error_kind"] for event in fleet.events(met) if event["event"] == "attempt_ended"]
        assert (ended[0], ended[-1]) == ("host_unreachable", None)
        assert starts(down) == 0

"""Which of the turns that wait are for this worker, now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import pytest

from ops.ledger import Seen
from workers.hosts.inventory import Hosts, TurnHost
from workers.worker.eligibility import Eligibility


@dataclass(frozen=True)
class Quiet:
    """A host that nobody talks to."""

    name: str
    path: str = ""
    rest_s: float = 0.0

    async def open_channel(self) -> NoReturn:
        """See `Host`."""
        raise NotImplementedError

    async def close(self) -> None:
        """See `Host`."""


def host(name: str, slots: int | None = 1, rest_s: float = 0.0, **labels: str) -> TurnHost:
    return TurnHost(Quiet(name, rest_s=rest_s), "/spool", slots=slots, labels=labels)


NOW = 1_000_000.0
HOSTS = Hosts([host("local", None), host("a", 2, gpu="yes"), host("b", 1)], default=["a", "b"])


def test_each_turn_that_is_admitted_takes_a_slot() -> None:
    vacancies = Eligibility(HOSTS, {"a": 1}, dict, NOW)
    assert [vacancies.admit("any") for _ in range(3)] == [True, True, False]
    assert not vacancies.admit("host:b")
    assert vacancies.admit("host:local")  # which has no limit


def test_least_loaded_host_is_counted_on_first() -> None:
    vacancies = Eligibility(HOSTS, {"a": 1}, dict, NOW)
    assert vacancies.admit("any")
    assert not vacancies.admit("host:b")
    assert vacancies.admit("host:a")


def test_host_that_rests_is_counted_on_last() -> None:
    vacancies = Eligibility(Hosts([host("tired", 1, rest_s=30.0), host("fresh", 1)]), {}, dict, NOW)
    assert vacancies.admit("any")
    assert not vacancies.admit("host:fresh")


def test_labels_say_which_hosts_will_do() -> None:
    vacancies = Eligibility(HOSTS, {"b": 1}, dict, NOW)
    assert [vacancies.admit('labels:{"gpu": "yes"}') for _ in range(3)] == [True, True, False]


def test_open_attempt_needs_no_slot() -> None:
    assert Eligibility(HOSTS, {"a": 2}, dict, NOW).admit("at:a")


def test_cancelled_turn_needs_no_host() -> None:
    assert Eligibility(Hosts([]), {}, dict, NOW).admit("nowhere")


@pytest.mark.parametrize("place", ["host:far", "at:far", 'labels:{"arch": "arm"}'])
def test_turn_for_a_host_that_others_know_is_left_to_them(place: str) -> None:
    fleet = {"far": [Seen({}, NOW - 9_000), Seen({"arch": "arm"}, NOW - 60)]}
    assert not Eligibility(HOSTS, {}, lambda: fleet, NOW).admit(place)


@pytest.mark.parametrize("place", ["host:far", "at:far", 'labels:{"arch": "arm"}'])
def test_turn_for_a_host_that_nobody_knows_is_taken_to_say_so(place: str) -> None:
    assert Eligibility(HOSTS, {}, lambda: {"a": [Seen({"gpu": "yes"}, NOW)]}, NOW).admit(place)


@pytest.mark.parametrize(("place", "taken"), [("host:down", False), ("at:down", True)])
def test_host_whose_workers_are_down_is_waited_for_but_not_by_what_may_run_there(place: str, taken: bool) -> None:
    assert Eligibility(HOSTS, {}, lambda: {"down": [Seen({}, NOW - 3_600)]}, NOW).admit(place) is taken

"""The keeper of the embedded broker: it restarts a dead one, with growing pauses, and never a frozen one."""

from __future__ import annotations

import itertools

import pytest
from structlog.testing import capture_logs

from workers.brokers.embedded import BrokerLoading
from workers.brokers.keeper import BrokerKeeper
from workers.errors import BrokerUnavailable


class Broker:
    """It is what a test makes of it."""

    def __init__(self) -> None:
        self.up = False
        self.frozen = False
        self.broken = False
        self.loads = 0  # it reads its data for so many calls
        self.told_to_stop = False
        self.started = False
        self.starts = 0

    def running(self) -> bool:
        if self.frozen:
            raise BrokerUnavailable("it does not answer")
        return self.up

    def ensure(self) -> bool:
        self.starts += 1
        if self.broken:
            raise BrokerUnavailable("it cannot start")
        self.up = self.started = True
        if self.loads:
            self.loads -= 1
            raise BrokerLoading("it reads its data")
        return True

    def stop(self) -> bool:
        was, self.up = self.running(), False
        return was


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_dead_one_is_started_anew_at_once(broker: Broker) -> None:
    keeper = BrokerKeeper(broker, lambda: 1000.0)
    assert keeper.look() == 1.0
    assert (broker.up, broker.starts) == (True, 1)
    assert keeper.look() == 1.0
    assert broker.starts == 1


def test_one_that_cannot_start_is_tried_ever_more_rarely_and_each_try_is_logged(broker: Broker) -> None:
    clock = itertools.count(1000.0)
    keeper = BrokerKeeper(broker, lambda: next(clock))
    broker.broken = True
    with capture_logs() as logs:
        assert [keeper.look() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert sum("could not be started" in entry["event"] for entry in logs) == 8


def test_after_two_quiet_minutes_the_next_death_is_the_first_again(broker: Broker) -> None:
    now = [1000.0]
    keeper = BrokerKeeper(broker, lambda: now[0])
    for expected in (1, 2, 4):
        assert keeper.look() == expected
        broker.up = False
    now[0] += 121
    assert keeper.look() == 1


def test_one_that_was_stopped_on_purpose_stays_down(broker: Broker) -> None:
    broker.told_to_stop = True
    keeper = BrokerKeeper(broker)
    with capture_logs() as logs:
        assert [keeper.look(), keeper.look()] == [1, 1]
    assert broker.starts == 0
    (entry,) = logs
    assert "it was stopped by `runturn down` or another `runturn up`" in entry["error"]


def test_frozen_one_is_named_and_left_alone(broker: Broker) -> None:
    broker.frozen = True
    keeper = BrokerKeeper(broker, lambda: 1000.0)
    with capture_logs() as logs:
        assert [keeper.look() for _ in range(3)] == [5, 5, 5]
        broker.frozen, broker.up = False, True
        assert keeper.look() == 1
    assert broker.starts == 0
    assert [(entry["event"], entry.get("error")) for entry in logs] == [
        ("the embedded broker cannot be used", "it does not answer"),
        ("the embedded broker can be used again", None),
    ]


def test_frozen_one_that_is_killed_is_restarted_at_once(broker: Broker) -> None:
    broker.frozen = True
    keeper = BrokerKeeper(broker, lambda: 1000.0)
    for _ in range(9):
        keeper.look()
    broker.frozen = False
    assert keeper.look() == 1.0
    assert broker.up


def test_one_that_reads_its_data_is_waited_for_and_not_stopped(broker: Broker) -> None:
    broker.loads = 3
    with BrokerKeeper(broker):
        assert (broker.up, broker.starts) == (True, 4)
    broker.loads, broker.up = 1, False
    keeper = BrokerKeeper(broker, lambda: 1000.0)
    assert [keeper.look(), keeper.look()] == [1, 1]
    assert broker.up


def test_one_that_does_not_answer_in_time_is_not_stopped_by_who_has_started_it(broker: Broker) -> None:
    broker.broken, broker.up, broker.started = True, True, True
    with pytest.raises(BrokerUnavailable), BrokerKeeper(broker):
        pass
    assert broker.up


def test_only_one_that_was_started_here_is_stopped_at_the_end(broker: Broker) -> None:
    with BrokerKeeper(broker):
        assert broker.up
    assert not broker.up
    broker.up, broker.started = True, False
    broker.ensure = lambda: False  # type: ignore[method-assign]  # it was there
    with BrokerKeeper(broker):
        pass
    assert broker.up


def test_frozen_one_does_not_make_the_end_fail(broker: Broker) -> None:
    with BrokerKeeper(broker):
        broker.frozen = True

"""The threads of a worker outlive what goes wrong in them: without them, all its turns would suffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from adapters.events import AssistantText
from adapters.protocol.result import Status, TurnResult
from ops.errors import LedgerUnavailable
from tests.integration.turns.hosts.test_host_faults import running
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.site import Site
from tests.support.waiting import until
from workers.events.bus import Publisher, Subscription
from workers.events.fanout import RedisFanout
from workers.worker.admission import Admitted

SAID = [AssistantText("hello")]
OPTIONS = {"lines": ["{}"]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def test_events_that_cannot_be_stored_do_not_keep_those_of_other_turns(site: Site) -> None:
    failed: list[str] = []

    def fail_once(point: str) -> None:
        if point in ("before events.append_many", "before events.append") and point not in failed:
            failed.append(point)
            raise RuntimeError("as from a fault of ours")

    event_writer = site.worker(fail_once).event_writer
    first, second = (site.claim(site.queue(options=OPTIONS)) for _ in range(2))
    event_writer.store(first, 1, SAID, site.now())
    until(lambda: len(failed) == 2, "the failures, of all together and of the one")
    event_writer.store(second, 1, SAID, site.now())
    until(lambda: site.ledger.events.last_seq(second.turn_id) == 1, "the other turn's event")


def test_former_claim_does_not_push_the_next_ones_events_aside(site: Site) -> None:
    turn_id = site.queue(options=OPTIONS)
    event_writer = site.worker().event_writer
    former, current = site.claim(turn_id), site.claim(turn_id)
    event_writer.store(current, 1, SAID, site.now())
    event_writer.store(former, 1, SAID, site.now())
    event_writer.store(current, 2, SAID, site.now())
    event_writer.flush(turn_id)
    assert site.ledger.events.last_seq(turn_id) == 2


def test_result_is_given_once_the_ledger_answers_again(site: Site, recording: Path) -> None:
    """The turn was settled, then the ledger went away: whoever waits is to get the result, not that failure."""
    failures = iter([LedgerUnavailable("locked")])

    def fail_once(point: str) -> None:
        if point == "before waiters.of" and (failure := next(failures, None)):
            raise failure

    request = site.request(options={"recording": str(recording)}, turn_id="asked")
    with running(site, fail_once) as worker:
        document = request.model_dump(mode="json", exclude_defaults=True)
        assert worker.admit("asked-again", document) == Admitted()
        outcome = worker("asked")
        assert isinstance(outcome, TurnResult)
        assert outcome.status is Status.COMPLETED
        site.later += 60  # it is settled long enough for somebody to look after it
        assert worker.told("asked-again")["status"] == "completed"


def test_scheduler_outlives_a_fault(site: Site) -> None:
    failures = iter([RuntimeError("a fault of ours"), LedgerUnavailable("locked")])

    def fail_twice(point: str) -> None:
        if point == "before queue.take" and (failure := next(failures, None)):
            raise failure

    turn_id = site.queue(options=OPTIONS)
    with running(site, fail_twice) as worker:
        assert isinstance(worker(turn_id), TurnResult)


def test_publisher_outlives_a_fault(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [RuntimeError("as from a client library")]
    send = RedisFanout.send

    def fail_once(sender: RedisFanout, messages: Sequence[tuple[str, bytes]]) -> None:
        if failures:
            raise failures.pop()
        send(sender, messages)

    monkeypatch.setattr(RedisFanout, "send", fail_once)
    publisher = Publisher(fleet.broker.url)
    with Subscription(fleet.broker.url, "t") as subscription:
        publisher.publish("t", 1, [b"{}"])
        until(lambda: not failures, "the fault")
        publisher.publish("t", 2, [b"{}"])
        (batch,) = until(lambda: list(subscription.batches(1.0)), "the second event")
    publisher.close()
    assert batch.first_seq == 2

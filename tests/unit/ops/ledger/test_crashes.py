"""Workers that are killed, frozen and overtaken between any two calls, over a ledger whose answers get lost.

A random but repeatable world: what agents were billed for is known, so are the events they printed. Whatever
happens to the workers, the books must say the same in the end.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Generator
from typing import TypeVar

import pytest

from adapters.protocol.result import ErrorInfo, Status, TurnResult, totals
from adapters.usage import NO_USAGE, ModelUsage, Tokens, Usage, UsageSource, sum_costs
from ops.errors import LedgerUnavailable, StaleClaim
from ops.ledger import Attempt, AttemptEnd, BudgetKey, Claim, HostBusy, InUse, Ledger, Period, State
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import PLACE, TTL, a_request, audit, claimed

MAX_ATTEMPTS = 4
SLOTS = 1
T = TypeVar("T")
Steps = Generator[None, None, T]


class World:
    """The clock, the hosts, and who asks for turns by name: all that outlives a worker."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.ledger = ledger
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.messages: list[str] = []
        self.billed: dict[str, Usage] = {}  # by spool, for every agent that was ever started
        self.workers: list[Worker] = []
        self.kills = self.overtaken = self.lost_answers = self.most_open = 0

    def start_agent(self, spool_id: str) -> Usage:
        """Start an agent, unless this spool was started before; it is billed at once."""
        if spool_id not in self.billed:
            sources = (UsageSource.RESULT, UsageSource.SESSION_FILES, UsageSource.STREAM, UsageSource.NONE)
            source = self.rng.choice(sources)
            models = self.rng.sample(("opus", "haiku", "unknown"), 0 if source is UsageSource.NONE else 2)
            self.billed[spool_id] = Usage({model: self._use(model, source) for model in models}, source)
        return self.billed[spool_id]

    def _use(self, model: str, source: UsageSource) -> ModelUsage:
        tokens = Tokens(*(self.rng.randrange(10_000) for _ in range(4)))
        priced = source.observed and model != "unknown"
        return ModelUsage(tokens, round(self.rng.random(), 6) if priced else None)

    def call(self, operation: Callable[[], T]) -> Steps[T]:
        """Insist on an operation: the ledger may be away before it is done, or after."""
        while True:
            yield
            fate = self.rng.random()
            if fate < 0.05:
                continue  # not reached
            answer = operation()
            if fate < 0.10:
                self.lost_answers += 1
                continue  # done, but the answer was lost
            return answer

    def step(self) -> None:
        """Let one thing happen."""
        dice = self.rng.random()
        if dice < 0.70:
            self._one(lambda worker: worker.step())
        elif dice < 0.73:
            self._one(lambda worker: worker.die())
        elif dice < 0.80:
            self._one(lambda worker: worker.renew())
        elif dice < 0.90:
            idle = not self.messages and not self.workers
            self.now += 3600.0 if idle else self.rng.choice((0.5, 2.0, 1.2 * TTL))
        elif dice < 0.94:
            self._come_back()
        elif self.messages and len(self.workers) < 3:
            self._deliver()
        elif len(self.workers) < 3:
            self._take()

    def _one(self, happen: Callable[[Worker], object]) -> None:
        if self.workers:
            happen(self.rng.choice(self.workers))

    def _deliver(self) -> None:
        turn_id = self.rng.choice(self.messages)
        if self.rng.random() < 0.7:  # else it is delivered again later
            self.messages.remove(turn_id)
        self.workers.append(Worker(self, turn_id))

    def _come_back(self) -> None:
        """A worker that was frozen asks once more for a turn that it had before."""
        self.messages.append(str(self.rng.randrange(5)))

    def _take(self) -> None:
        """A worker takes what waits, where it sees a free slot; or is killed before it hears what it got."""
        full = self.ledger.hosts.open_attempts().get("local", 0) >= SLOTS
        owner = f"w{self.rng.random()}"
        claims = self.ledger.queue.take(owner, lambda place: not full or place == "at:local", self.now, TTL, 1)
        if self.rng.random() < 0.8:
            self.workers += [Worker(self, claim.turn_id, claim) for claim in claims]


class Worker:
    """Brings one delivery of a turn as far as it can."""

    def __init__(self, world: World, turn_id: str, taken: Claim | None = None) -> None:
        self.world, self.turn_id = world, turn_id
        self.owner = f"w{world.rng.random()}"
        self._slow_s = world.rng.choice((0.0, 3.0))  # how far its clock is behind
        self.claim = taken
        self._steps = self._run() if taken is None else self._work(taken, taken.open)

    @property
    def now(self) -> float:
        """What it takes the time to be."""
        return self.world.now - self._slow_s

    def die(self) -> None:
        """Be killed."""
        self.world.kills += 1
        self.world.workers.remove(self)

    def step(self) -> None:
        """Go on to the next point at which it might be killed."""
        try:
            next(self._steps)
        except StopIteration:
            self.world.workers.remove(self)
        except StaleClaim:
            self.world.overtaken += 1
            self.world.workers.remove(self)

    def renew(self) -> None:
        """Keep the lease; a worker that learns that it lost its turn leaves."""
        if self.claim is not None and not self.world.ledger.queue.renew([self.claim], self.now, TTL).held:
            self.world.workers.remove(self)

    def _run(self) -> Steps[None]:
        world = self.world
        claim = yield from world.call(lambda: claim_turn(world.ledger, self.turn_id, self.owner, self.now, TTL))
        if claim is not None:
            self.claim = claim
            yield from self._work(claim, claim.open)

    def _work(self, claim: Claim, attempt: Attempt | None) -> Steps[None]:
        world, ledger = self.world, self.world.ledger
        number = claim.last.attempt if claim.last else 0
        if attempt is None:
            if not (yield from self._enter_session(claim)):
                return
            attempt = yield from self._begin(claim, number + 1)
            if attempt is None:
                return
        number = attempt.attempt
        yield
        used = world.start_agent(attempt.spool_id)
        for part in (3, 5, 7):
            yield from self._append(claim, attempt, part)
        done = number == MAX_ATTEMPTS or _succeeds(attempt)
        end = AttemptEnd(number, used, "completed" if done else "overloaded", 0)
        if done:
            yield from self._settle(claim, end)
        else:
            due_at = self.now + world.rng.choice((0.0, 5.0))
            yield from world.call(lambda: ledger.queue.wait(claim, due_at, "overloaded", self.now, end))

    def _enter_session(self, claim: Claim) -> Steps[bool]:
        world, ledger = self.world, self.world.ledger
        session_id = f"session-{int(self.turn_id) % 2}"  # two turns want each of them
        entered = yield from world.call(lambda: ledger.sessions.lock(claim, session_id, now=self.now, **PLACE))
        if isinstance(entered, InUse):
            yield from world.call(lambda: ledger.queue.wait(claim, self.now + 3, "session_in_use", self.now))
            return False
        return True

    def _begin(self, claim: Claim, number: int) -> Steps[Attempt | None]:
        world, ledger = self.world, self.world.ledger
        spool = {"spool_id": f"{self.turn_id}.{number}", "session_id": None, "resume": False}
        begun = yield from world.call(
            lambda: ledger.queue.begin_attempt(claim, host="local", now=self.now, slots=SLOTS, **spool)
        )
        if isinstance(begun, HostBusy):
            yield from world.call(lambda: ledger.queue.wait(claim, self.now + 1, "host_busy", self.now))
            return None
        world.most_open = max(world.most_open, ledger.hosts.open_attempts()["local"])
        return begun

    def _append(self, claim: Claim, attempt: Attempt, part: int) -> Steps[None]:
        lines = _printed(attempt.spool_id)[:part]
        yield from self.world.call(lambda: self.world.ledger.events.append(claim, attempt.first_seq, lines))

    def _settle(self, claim: Claim, end: AttemptEnd) -> Steps[None]:
        world, ledger = self.world, self.world.ledger
        booked = yield from world.call(lambda: ledger.accounting.usage_of(self.turn_id))
        result = _result(self.turn_id, [*(booked | {end.attempt: end.usage}).values()])
        yield from world.call(lambda: ledger.queue.settle(claim, result, self.now, end))


def _succeeds(attempt: Attempt) -> bool:
    return random.Random(attempt.spool_id).random() < 0.4


def _printed(spool_id: str) -> list[bytes]:
    return [f"{spool_id}#{number}".encode() for number in range(7)]


def _result(turn_id: str, usages: list[Usage]) -> TurnResult:
    by_model: dict[str, ModelUsage] = {}
    for used in usages:
        for model, amount in used.by_model.items():
            by_model[model] = by_model[model] + amount if model in by_model else amount
    bill = Usage(by_model, UsageSource.RESULT)
    return TurnResult(
        turn_id=turn_id, status=Status.COMPLETED, usage=totals(bill), cost_usd=sum_costs([bill.cost_usd])
    )


@pytest.mark.parametrize("seed", range(6))
def test_books_equal_bills_whatever_happens_to_the_workers(ledger: Ledger, ledger_url: str, seed: int) -> None:
    world = World(ledger, seed)
    for period in (Period.DAY, Period.TOTAL):  # the audit looks at their sums
        ledger.budgets.put(BudgetKey("project", "web", period), 1000.0, 1.0, world.now)
    for number in range(5):
        ledger.queue.submit_many([a_request(str(number), labels={"project": "web"})], world.now)
        world.messages.append(str(number))
    for number in range(20_000):
        if number % 50 == 0 and not any(ledger.reports.queue_depths().values()):
            break
        world.step()
    assert ledger.reports.queue_depths() == dict.fromkeys((State.QUEUED, State.RUNNING, State.WAITING), 0)

    expected: Counter[str] = Counter()
    for used in world.billed.values():
        if used.source.observed:
            expected.update({model: amount.tokens.total for model, amount in used.by_model.items()})
    assert audit(ledger_url) == expected
    for number in range(5):
        _check_turn(world, str(number))
    assert world.kills + world.overtaken + world.lost_answers > 3  # the world was as rough as it is meant to be
    assert world.most_open == SLOTS
    assert ledger.hosts.open_attempts() == {}
    assert {budget.reserved_usd for budget in ledger.budgets.all_of(world.now)} == {0.0}


def _check_turn(world: World, turn_id: str) -> None:
    booked, result = world.ledger.accounting.usage_of(turn_id), world.ledger.reports.result(turn_id)
    assert booked == {
        int(s.split(".")[1]): used for s, used in world.billed.items() if s.startswith(f"{turn_id}.")
    }
    assert result is not None
    assert result.usage == _result(turn_id, [*booked.values()]).usage
    printed = [line for number in sorted(booked) for line in _printed(f"{turn_id}.{number}")]
    assert world.ledger.events.after(turn_id) == list(enumerate(printed, 1))


@pytest.mark.parametrize("lost", [False, True])
def test_every_operation_may_be_repeated_after_its_answer_was_lost(
    ledger: Ledger, ledger_url: str, lost: bool
) -> None:
    def twice(operation: Callable[[], T]) -> T:
        answer = operation()
        return operation() if lost else answer

    twice(lambda: ledger.queue.submit_many([a_request("1")], 1.0))
    claim = claim_turn(ledger, "1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    twice(lambda: ledger.sessions.lock(claim, "s", now=2.0, **PLACE))
    attempt = twice(
        lambda: ledger.queue.begin_attempt(
            claim, host="local", spool_id="s1", session_id="s", resume=False, now=2.0
        )
    )
    assert attempt.attempt == 1
    twice(lambda: ledger.queue.start(claim))
    twice(lambda: ledger.events.append(claim, 1, [b"{}"]))
    twice(lambda: ledger.queue.reached(claim))
    used = Usage({"opus": ModelUsage(Tokens(1, 2, 3, 4), 0.5)}, UsageSource.RESULT)
    end = AttemptEnd(1, NO_USAGE, "turn_failed")
    failure = ErrorInfo(kind="turn_failed", message="no", retryable=False)
    result = TurnResult(turn_id="1", status=Status.FAILED, error=failure)
    assert twice(lambda: ledger.queue.settle(claim, result, 4.0, end)) == result
    twice(lambda: ledger.accounting.amend("1", 1, used))
    assert audit(ledger_url) == {"opus": 10}


def test_lost_connection_in_a_transaction_leaves_nothing_behind(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger, "1")
    with contextlib.suppress(LedgerUnavailable), ledger._database.write() as connection:
        connection.exec_driver_sql("UPDATE turns SET epoch = 99")
        raise LedgerUnavailable
    assert ledger.queue.renew([claim], 2.0, TTL).held == {"1"}

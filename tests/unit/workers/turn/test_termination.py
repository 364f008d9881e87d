"""The end of an attempt as its worker brings it about, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from adapters.contract import Adapter
from adapters.errors import TurnCancelled, TurnTimeout
from ops.ledger import Attempt, Claim
from remote.follower import Follower
from remote.spool import Exit
from tests.support.ledger.accounts import a_request
from workers.ledger_calls import WorkerStopping
from workers.limits import Limits, LimitWatch, Moment
from workers.live.conversation import LiveTurn
from workers.turn.termination import NotEnded, Termination

START = 1_000_000.0
LIMITS = Limits(
    turn_timeout_s=3600, read_timeout_s=300, stall_timeout_s=300, deadline_at=None, max_total_tokens=None
)
NEW = Attempt("t1", 1, "local", "t1.1", "seal", None, False, 1, START)
CLAIM = Claim("t1", "w1", 1, a_request(), START, None, False, ())


class Clock:
    """Whoever sleeps moves it on, and sees what happens then."""

    def __init__(self) -> None:
        self.now = START
        self.ahead = 0.0  # of the ledger's clock, which may be set
        self.jump = 0.0  # on top of every sleep
        self.at: dict[float, Callable[[], object]] = {}

    def __call__(self) -> Moment:
        return Moment(self.now, self.now + self.ahead)

    async def sleep(self, seconds: float) -> None:
        """No time at all."""
        self.now += seconds + self.jump
        for when in [when for when in self.at if self.now >= when]:
            self.at.pop(when)()
        await asyncio.sleep(0)


class Followed:
    """The follower of an agent that notes what it is told, and ends when it is told to."""

    def __init__(self, *, asked: bool = True, fault: Exception | None = None, deaf: bool = False) -> None:
        self.attached = True
        self.asked = asked
        self.told: list[str] = []
        self.over = asyncio.Event()
        self._fault = fault
        self._deaf = deaf

    async def cancel(self) -> None:
        """See `Follower.cancel`."""
        self.told.append("cancel")
        if self._fault is not None:
            raise self._fault
        if not self._deaf:
            self.over.set()

    async def detach(self) -> None:
        """See `Follower.detach`."""
        self.told.append("detach")
        self.over.set()

    async def soft_stop(self, text: bytes) -> None:
        """See `Teller.soft_stop`."""
        self.told.append(text.decode())


class Agent:
    """An adapter that has its agent end by itself."""

    def soft_stop(self, reason: str) -> bytes:
        """See `Adapter.soft_stop`."""
        return f"stop: {reason}".encode()


class Faulty(Agent):
    """One that cannot say how."""

    def soft_stop(self, reason: str) -> bytes:
        """See `Adapter.soft_stop`."""
        raise ZeroDivisionError


class Broken(LimitWatch):
    """A watch with a fault of ours."""

    def exceeded(self, now: Moment) -> None:
        """See `LimitWatch.exceeded`."""
        raise ZeroDivisionError


class Stage:
    """One ending, and what it is the end of."""

    def __init__(self, agent: Agent | None = None, watch: type[LimitWatch] = LimitWatch, **changes: Any) -> None:
        self.clock = Clock()
        self.watch = watch(replace(LIMITS, **changes), START, self.clock())
        self.ending = self.for_claim(CLAIM, agent)

    def for_claim(self, claim: Claim, agent: Agent | None = None, attempt: Attempt = NEW) -> Termination:
        adapter = cast(Adapter, agent or Agent())
        return Termination(claim, attempt, adapter, self.watch, self.clock, 90.0, self.clock.sleep)

    async def follow(self, followed: Followed, live: Any = None) -> float:
        """See it through; returns after how many seconds it was over."""
        async with self.ending.seen_to(cast(Follower, followed), cast(LiveTurn | None, live)):
            await asyncio.wait_for(followed.over.wait(), 120)
        return self.clock.now - START


def run(coroutine: Coroutine[Any, Any, None]) -> list[Any]:
    """Run it; returns the errors that were logged."""
    with capture_logs() as logs:
        asyncio.run(coroutine)
    return [entry["event"] for entry in logs if entry["log_level"] == "error"]


def test_agent_that_reaches_a_limit_is_ended_for_it() -> None:
    async def play() -> None:
        stage, followed = Stage(turn_timeout_s=60), Followed()
        assert await stage.follow(followed) == pytest.approx(60, abs=2)  # its end is awaited, too
        assert followed.told == ["cancel"]
        assert isinstance(stage.ending.why, TurnTimeout)
        assert stage.ending.of(Exit(130, "cancel")) is stage.ending.why

    assert not run(play())


def test_agent_whose_end_is_overdue_is_left() -> None:
    async def play() -> None:
        stage, followed = Stage(turn_timeout_s=60), Followed(deaf=True)
        assert await stage.follow(followed) == pytest.approx(60 + 90, abs=2)
        assert followed.told == ["cancel", "detach"]
        assert isinstance(stage.ending.left(), NotEnded)

    assert not run(play())


def test_time_without_a_channel_is_not_held_against_a_host() -> None:
    async def play() -> None:
        stage, followed = Stage(turn_timeout_s=60), Followed(deaf=True)
        stage.clock.at[START + 100] = lambda: setattr(followed, "attached", False)
        stage.clock.at[START + 500] = lambda: setattr(followed, "attached", True)
        assert await stage.follow(followed) == pytest.approx(500 + 90 - 40, abs=2)

    assert not run(play())


def test_host_whose_channel_is_lost_again_and_again_has_no_longer() -> None:
    async def play() -> None:
        stage, followed = Stage(turn_timeout_s=60), Followed(deaf=True)
        for lost_at in range(70, 400, 20):
            stage.clock.at[START + lost_at] = lambda: setattr(followed, "attached", False)
            stage.clock.at[START + lost_at + 5] = lambda: setattr(followed, "attached", True)
        assert await stage.follow(followed) == pytest.approx(60 + 90 + 30, abs=8)

    assert not run(play())


@pytest.mark.parametrize("hour", [3600.0, -3600.0])
def test_step_of_a_clock_neither_ends_an_agent_nor_lets_it_run_longer(hour: float) -> None:
    async def play() -> None:
        stage, followed = Stage(turn_timeout_s=60), Followed()
        stage.clock.at[START + 20] = lambda: setattr(stage.clock, "ahead", hour)
        assert await stage.follow(followed) == pytest.approx(60, abs=2)
        assert isinstance(stage.ending.why, TurnTimeout)

    assert not run(play())


def test_agent_is_asked_once_to_end_before_it_is_ended() -> None:
    async def play() -> None:
        stage, followed = Stage(max_total_tokens=10, soft_stop_s=30), Followed()
        stage.clock.at[START + 20] = lambda: stage.watch.spent(10, 0.0)
        assert await stage.follow(followed) == pytest.approx(50, abs=2)
        assert followed.told == ["stop: Token budget exhausted", "cancel"]

    assert not run(play())


def test_agent_that_is_refused_a_tool_has_been_asked_to_end() -> None:
    async def play() -> None:
        stage, followed = Stage(max_total_tokens=10, soft_stop_s=30), Followed()

        def spend() -> None:
            assert stage.ending.refusal() is None
            stage.watch.spent(10, 0.0)
            assert stage.ending.refusal() == "Token budget exhausted"
            followed.over.set()

        stage.clock.at[START + 1] = spend
        await stage.follow(followed)
        assert followed.told == ["stop: Token budget exhausted"]
        error = stage.ending.of(Exit(0, "exit"))
        assert error is not None
        assert error.kind == "budget_exceeded"

    assert not run(play())


def test_first_reason_stands_and_is_told_to_an_agent_that_wants_a_tool() -> None:
    async def play() -> None:
        stage, followed = Stage(), Followed()
        stage.ending.stop(TurnCancelled("first"))
        stage.ending.stop(TurnTimeout("second"))
        await stage.follow(followed)
        assert (followed.told, stage.ending.refusal()) == (["cancel"], "first")

    assert not run(play())


def test_agent_that_was_never_started_is_left_and_not_ended() -> None:
    async def play() -> None:
        stage, followed = Stage(), Followed(asked=False)
        why = TurnCancelled()
        stage.ending.stop(why)
        await stage.follow(followed)
        assert followed.told == ["detach"]
        assert stage.ending.left() is why

    assert not run(play())


def test_agent_that_another_worker_has_started_is_ended() -> None:
    async def play() -> None:
        stage, followed = Stage(), Followed(asked=False)
        stage.ending = stage.for_claim(CLAIM, attempt=replace(NEW, start_sent=True))
        stage.ending.stop(TurnCancelled())
        await stage.follow(followed)
        assert followed.told == ["cancel"]

    assert not run(play())


def test_agent_is_left_to_the_next_worker() -> None:
    async def play() -> None:
        stage, followed = Stage(), Followed()
        stage.clock.at[START + 5] = stage.ending.detach
        await stage.follow(followed)
        assert followed.told == ["detach"]
        assert isinstance(stage.ending.left(), WorkerStopping)

    assert not run(play())


class Asking:
    """A live turn whose agent waits for its producer."""

    waits_for_us = True


@pytest.mark.parametrize("silent", ["cut off", "frozen", "asking", "agent"])
def test_only_the_silence_of_the_agent_counts(silent: str) -> None:
    async def play() -> None:
        stage, followed = Stage(), Followed()
        followed.attached = silent != "cut off"
        stage.clock.jump = 600 if silent == "frozen" else 0.0
        stage.clock.at[START + 1000] = followed.over.set
        took_s = await stage.follow(followed, Asking() if silent == "asking" else None)
        assert followed.told == (["cancel"] if silent == "agent" else [])
        assert (took_s < 302) == (silent == "agent")

    assert not run(play())


# -- faults of ours


def test_attempt_whose_limits_cannot_be_looked_at_is_left_with_the_fault() -> None:
    async def play() -> None:
        stage, followed = Stage(watch=Broken), Followed()
        await stage.follow(followed)
        assert followed.told == ["detach"]
        assert isinstance(stage.ending.left(), ZeroDivisionError)

    assert run(play()) == ["terminating an attempt failed"]


def test_such_an_attempt_can_be_cancelled() -> None:
    async def play() -> None:
        stage, followed = Stage(watch=Broken), Followed()
        stage.ending.stop(TurnCancelled())
        await stage.follow(followed)
        assert followed.told == ["cancel"]

    assert not run(play())


def test_worker_that_is_to_leave_takes_no_fault_along() -> None:
    async def play() -> None:
        stage, followed = Stage(watch=Broken), Followed()
        stage.ending.detach()
        await stage.follow(followed)
        assert isinstance(stage.ending.left(), WorkerStopping)

    run(play())


def test_agent_that_could_not_be_ended_is_left_with_the_fault() -> None:
    async def play() -> None:
        stage, followed = Stage(turn_timeout_s=60), Followed(fault=RuntimeError("a fault of ours"))
        await stage.follow(followed)
        assert followed.told == ["cancel", "detach"]
        assert str(stage.ending.left()) == "a fault of ours"

    assert run(play()) == ["terminating an attempt failed"]


def test_agent_that_cannot_be_asked_to_end_is_ended_all_the_same() -> None:
    async def play() -> None:
        stage, followed = Stage(Faulty(), max_total_tokens=10, soft_stop_s=30), Followed()
        stage.watch.spent(10, 0.0)
        assert await stage.follow(followed) == pytest.approx(30, abs=2)
        assert followed.told == ["cancel"]

    (entry,) = run(play())
    assert entry == "could not ask an agent to finish on its own; it will be terminated when its time is up"


# -- what an earlier worker did


@pytest.mark.parametrize(
    ("reason", "cancelled", "at", "kind"),
    [
        ("exit", False, 1, None),
        ("exit", False, 95, "deadline_exceeded"),  # it was asked to end by then
        ("cancel", True, 1, "turn_cancelled"),
        ("cancel", False, 95, "deadline_exceeded"),
        ("cancel", False, 120, "deadline_exceeded"),
        ("cancel", False, 1, "read_timeout"),  # nothing else is left
    ],
)
def test_end_that_an_earlier_worker_has_asked_for_has_its_reason(
    reason: str, cancelled: bool, at: float, kind: str | None
) -> None:
    stage = Stage(deadline_at=START + 100, soft_stop_s=30)
    stage.ending = stage.for_claim(replace(CLAIM, cancel_requested=cancelled))
    stage.clock.now += at
    error = stage.ending.of(Exit(0, reason))
    assert (error and error.kind) == kind

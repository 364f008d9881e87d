"""A turn whose attempts are billed, and fail in the same way, is not tried to the last one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status, TurnResult
from tests.fakes.model_api import Fault, Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_ends import FOR_EVER
from tests.support.fleets.site import Killed, Site
from tests.support.places import RECORDINGS
from tests.support.processes import of_turns
from tests.support.waiting import until
from workers.turn.settlement import Parked

SONNET = "claude-sonnet-4-5"
STALL_MS = 3_000  # the machine is shared: an agent that works has to print within this


class Play:
    """A turn whose attempts do one thing after the other, each with a worker of its own."""

    def __init__(self, site: Site, **fields: Any) -> None:
        self._site = site
        self._recording = site.root / "attempt.jsonl"
        options = {"recording": str(self._recording), "exit_code": 1}
        self.turn_id = site.queue(options=options, **{"stall_timeout_ms": STALL_MS, **fields})

    def prints(self, *lines: str) -> None:
        """Its agent prints this from now on."""
        self._recording.write_text("\n".join(lines) + "\n")

    def attempt(self, *lines: str) -> TurnResult | Parked:
        """Let a worker that has never seen the turn make one attempt, in which the agent prints these lines."""
        self.prints(*lines)
        outcome = asyncio.run(self._site.work(self.turn_id))
        assert isinstance(outcome, TurnResult | Parked), outcome
        self._site.later += 300  # whatever it waits for
        return outcome

    def attempts(self, *lines: str) -> TurnResult:
        """The same attempt again and again, until the turn is settled."""
        while isinstance(outcome := self.attempt(*lines), Parked):
            pass
        return outcome


def recorded(name: str) -> list[str]:
    return (RECORDINGS / f"{name}.jsonl").read_text().splitlines()


WORK = recorded("a_parallel_tools")[:2]  # it comes up, and the model answers: 4,501 tokens at least
CRASH = (*WORK,)
STALL = (*WORK, FOR_EVER)
REFUSED = (*WORK, *recorded("h5_529_forever")[-2:])  # by the API, which is overloaded
CUT = (*WORK, *recorded("h7d_chunked_rst")[-2:])
NO_API = (*recorded("j_conn_refused"),)  # nobody answers, nothing is billed


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()
    until(lambda: not of_turns(site.spool), "all agents to be gone")


def told(result: TurnResult) -> tuple[str, int]:
    assert result.error is not None
    assert result.status is Status.FAILED
    return result.error.kind, result.attempts


@pytest.mark.parametrize(
    ("lines", "kind"),
    [(CRASH, "port_exit"), (STALL, "turn_stalled"), (CUT, "api_unreachable")],
    ids=["crash", "stall", "cut"],
)
def test_turn_that_fails_twice_in_the_same_way_at_a_price_is_not_tried_a_third_time(
    site: Site, lines: tuple[str, ...], kind: str
) -> None:
    result = Play(site).attempts(*lines)
    assert told(result) == (kind, 2) == (kind, site.starts)
    assert result.error is not None
    assert (
        "not retried: 2 attempts were billed (at least 9,002 tokens, USD 0.0116) and failed"
        in result.error.message
    )
    assert "max_paid_retries (now 1)" in result.error.message


def test_request_says_how_many_more_it_is_worth(site: Site) -> None:
    assert told(Play(site, max_paid_retries=0).attempts(*CRASH)) == ("port_exit", 1)
    assert told(Play(site, max_paid_retries=3).attempts(*CRASH)) == ("port_exit", 4)
    last = Play(site, max_paid_retries=9).attempts(*CRASH)
    assert told(last) == ("port_exit", 5)
    assert last.error is not None
    assert "not retried" not in last.error.message


def test_refusals_of_the_api_are_tried_to_the_last_attempt(site: Site) -> None:
    assert told(Play(site).attempts(*REFUSED)) == ("overloaded", 5)


def test_turn_outlives_an_outage_of_its_api(site: Site) -> None:
    play = Play(site)
    assert isinstance(play.attempt(*CUT), Parked)
    for _ in range(3):
        assert isinstance(play.attempt(*NO_API), Parked)
    assert told(play.attempts(*NO_API)) == ("api_unreachable", 5)


def test_failures_of_several_kinds_are_counted_one_by_one(site: Site) -> None:
    play = Play(site)
    for lines in (CRASH, STALL, REFUSED):
        assert isinstance(play.attempt(*lines), Parked)
    assert told(play.attempts(*CRASH)) == ("port_exit", 4)


@pytest.mark.parametrize("step", ["accounting.usage_of", "queue.settle"])
def test_worker_that_is_killed_does_not_begin_the_count_anew(site: Site, step: str) -> None:
    play = Play(site)
    assert isinstance(play.attempt(*CRASH), Parked)

    def die(point: str) -> None:
        if point == f"before {step}":
            raise Killed(point)

    with pytest.raises(Killed):
        asyncio.run(site.work(play.turn_id, die))
    assert told(play.attempts(*CRASH)) == ("port_exit", 2)
    assert site.starts == 2


@pytest.mark.parametrize(("who", "kind"), [("supervisor", "host_lost"), ("agent", "turn_cancelled")])
def test_turn_whose_agents_are_killed_at_work_is_tried_to_the_last_attempt(
    site: Site, who: str, kind: str
) -> None:
    """They were billed, but that is not the turn's own doing: it goes on where it was."""
    play = Play(site, stall_timeout_ms=0, max_attempts=3)

    async def lose(number: int) -> object:
        working = asyncio.create_task(site.work(play.turn_id))
        usage = '"event":"token_usage"'
        await asyncio.to_thread(
            until, lambda: sum(usage in event for event in site.events(play.turn_id)) == number, "it to be billed"
        )
        pid = (site.spool / f"{play.turn_id}.{number}" / who).read_text().split()[0]
        os.kill(int(pid), signal.SIGKILL)
        return await working

    play.prints(*STALL)
    for number in (1, 2):
        assert isinstance(asyncio.run(lose(number)), Parked)
        site.later += 300
    last = asyncio.run(lose(3))
    assert isinstance(last, TurnResult)
    assert last.error is not None
    assert (last.error.kind, last.attempts) == (kind, 3)


def test_claude_code_whose_answers_are_cut_is_paid_for_twice_and_not_five_times(tmp_path: Path) -> None:
    cut = Fault("cut", 3)
    answers = [Reply((Text("as far as this"),), Usage(2000 + n, 40, 30, 4), fault=cut) for n in range(9)]
    script = Script("cut", (Reply((replies.bash("echo 1"),), Usage(1000, 20, 30, 4)), *answers))
    with claude_fleet(tmp_path, script) as (fleet, api):
        result = fleet.run(fleet.request("do it [script:cut]", options={"model": SONNET}))
        billed = api.bill("cut")
    assert told(result) == ("api_unreachable", 2)
    assert result.error is not None
    assert "not retried: 2 attempts were billed" in result.error.message
    # The tool's, and three for each attempt, which Claude Code itself asks again; five attempts would be 16.
    assert len(billed.requests) == 7
    assert not result.usage_complete

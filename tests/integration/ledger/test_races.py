"""Many processes at the same turn, at the same moment."""

from __future__ import annotations

import os
import random
import signal

from adapters.usage import ModelUsage, Tokens, Usage, UsageSource
from ops.ledger import Claim, Ledger, OutcomeTotals, SessionRow, Settled
from tests.support.claiming import claim_turn
from tests.support.fleets.forked import CONTEXT
from tests.support.ledger.accounts import (
    PLACE,
    TTL,
    a_failure,
    a_request,
    a_result,
    an_end,
    audit,
    begun,
    claimed,
    completed,
)
from tests.support.ledger.processes import Crew


def _take(number: int, url: str) -> list[str]:
    with Ledger.open(url) as ledger:
        return [claim.turn_id for claim in ledger.queue.take(f"w{number}", lambda _: True, 1.0, TTL, 10)]


def test_eight_workers_take_each_turn_once(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    for turn in range(10):
        ledger.queue.submit_many([a_request(f"t{turn}")], 1.0)
    answers = crew.together(_take, ledger_url)
    assert sorted(turn for taken in answers for turn in taken) == [f"t{turn}" for turn in range(10)]


def _settle(number: int, url: str, claims: list[Claim]) -> list[str]:
    with Ledger.open(url) as ledger:
        return [
            ledger.queue.settle(claim, a_result(claim.turn_id, str(number)), 2.0, an_end()).text
            for claim in claims
        ]


def test_settlement_raced_by_eight_happens_once(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    claims = [claimed(ledger, f"t{turn}") for turn in range(10)]
    for claim in claims:
        begun(ledger, claim)
    answers = crew.together(_settle, ledger_url, claims)
    assert all(len(set(texts)) == 1 for texts in zip(*answers, strict=True))
    assert audit(ledger_url) == {"opus": 10 * 3520}
    assert ledger.reports.totals().outcomes == (OutcomeTotals("claude-code", "completed", 10),)


def _lock(number: int, url: str) -> bool:
    with Ledger.open(url) as ledger:
        claim = claimed(ledger, f"t{number}")
        return isinstance(ledger.sessions.lock(claim, "session-1", now=2.0, **PLACE), SessionRow)


def test_session_raced_by_eight_turns_is_held_by_one(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    ledger.reports.queue_depths()
    assert sum(crew.together(_lock, ledger_url)) == 1


def _work(number: int, url: str) -> None:
    models = random.Random(number).sample(("opus", "haiku", "sonnet"), 3)  # as they come, in any order
    by_model = {model: ModelUsage(Tokens(number, 2, 3, 4), 0.1) for model in models}
    with Ledger.open(url) as ledger:
        for turn in range(15):
            completed(ledger, f"w{number}t{turn}", Usage(by_model, UsageSource.RESULT))


def test_totals_are_exact_after_eight_processes_booked_the_same_models(
    ledger: Ledger, ledger_url: str, crew: Crew
) -> None:
    ledger.reports.queue_depths()
    crew.together(_work, ledger_url)
    tokens = 15 * sum(number + 9 for number in range(8))
    assert audit(ledger_url) == dict.fromkeys(("opus", "haiku", "sonnet"), tokens)


def _cancel_or_claim(number: int, url: str) -> list[str]:
    with Ledger.open(url) as ledger:
        if number % 2:
            answers: list[object] = [claim_turn(ledger, f"t{turn}", f"w{number}", 1.0, TTL) for turn in range(10)]
        else:
            answers = [ledger.queue.settle_unclaimed(f"t{turn}", a_failure(f"t{turn}"), 1.0) for turn in range(10)]
    return [type(answer).__name__ for answer in answers]


def test_turn_is_either_claimed_or_cancelled(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    for turn in range(10):
        ledger.queue.submit_many([a_request(f"t{turn}")], 1.0)
    for answers in zip(*crew.together(_cancel_or_claim, ledger_url), strict=True):
        assert (answers.count(Claim.__name__), answers.count(Settled.__name__)) in {(1, 0), (0, 4)}
    audit(ledger_url)


def _append(_: int, url: str, claim: Claim) -> int:
    lines = [b"%d" % seq for seq in range(1, 101)]
    with Ledger.open(url) as ledger:
        for last in range(10, 101, 10):
            ledger.events.append(claim, 1, lines[:last])
        return ledger.events.last_seq(claim.turn_id)


def test_events_offered_by_eight_are_stored_once(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    claim = claimed(ledger)
    assert crew.together(_append, ledger_url, claim) == [100] * 8
    assert ledger.events.after("t1") == [(seq, b"%d" % seq) for seq in range(1, 101)]


def _die_in_a_transaction(url: str) -> None:
    with Ledger.open(url) as ledger, ledger._database.write() as connection:
        connection.exec_driver_sql("UPDATE turns SET epoch = 99, state = 'settled'")
        os.kill(os.getpid(), signal.SIGKILL)


def test_worker_killed_inside_a_transaction_leaves_no_trace_and_no_lock(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger)
    victim = CONTEXT.Process(target=_die_in_a_transaction, args=(ledger_url,))
    victim.start()
    victim.join(120)
    assert victim.exitcode == -signal.SIGKILL
    begun(ledger, claim)
    assert ledger.reports.turn("t1").attempts == 1

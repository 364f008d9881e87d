"""Usage that is known only after its attempt was booked: once, in every number that it belongs in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sqlalchemy as sa

from adapters.usage import NO_USAGE, ModelUsage, Tokens, Usage, UsageSource
from ops.ledger import CostKey, Ledger, SpoolRow
from ops.ledger.schema import turns
from tests.support.ledger.accounts import (
    TTL,
    a_request,
    a_result,
    a_usage,
    an_end,
    audit,
    begun,
    claimed,
    completed,
    tried_again,
)
from tests.support.ledger.processes import Crew

ESTIMATE = a_usage(None, UsageSource.STREAM, model="guessed")
OBSERVED = Usage(
    {"opus": ModelUsage(Tokens(1, 2, 3, 4), 0.5), "haiku": ModelUsage(Tokens(10, 20, 30, 40))},
    UsageSource.SESSION_FILES,
)


@pytest.mark.parametrize("booked", [ESTIMATE, NO_USAGE], ids=["estimate", "nothing"])
def test_observed_usage_takes_the_place_of_what_was_booked(ledger: Ledger, ledger_url: str, booked: Usage) -> None:
    completed(ledger, "t1", booked)
    completed(ledger, "t2", a_usage(0.25))
    assert ledger.accounting.amend("t1", 1, OBSERVED)
    assert ledger.accounting.usage_of("t1") == {1: OBSERVED}
    spent = ledger.reports.turn("t1").spent
    assert (spent.tokens, spent.cost_usd, spent.unpriced_tokens) == (Tokens(11, 22, 33, 44), 0.5, 100)
    assert spent.estimated == Tokens()
    assert audit(ledger_url, amended=True) == {"opus": 3530, "haiku": 100}
    assert {row.key: row.spent.cost_usd for row in ledger.reports.cost(CostKey.MODEL)} == {
        "opus": 0.75,
        "haiku": None,
    }


def test_usage_is_amended_once(ledger: Ledger, ledger_url: str) -> None:
    completed(ledger, "t1", ESTIMATE)
    assert ledger.accounting.amend("t1", 1, OBSERVED)
    assert not ledger.accounting.amend("t1", 1, OBSERVED)
    assert not ledger.accounting.amend("t1", 1, a_usage(9.0))
    assert audit(ledger_url, amended=True) == {"opus": 10, "haiku": 100}


def test_observed_usage_stands_against_everything(ledger: Ledger, ledger_url: str) -> None:
    for number, source in enumerate((UsageSource.RESULT, UsageSource.SESSION_FILES)):
        completed(ledger, f"t{number}", a_usage(0.25, source))
        assert not ledger.accounting.amend(f"t{number}", 1, OBSERVED)
    assert audit(ledger_url) == {"opus": 2 * 3520}


def test_estimate_takes_no_place(ledger: Ledger, ledger_url: str) -> None:
    completed(ledger, "t1", NO_USAGE)
    assert not ledger.accounting.amend("t1", 1, ESTIMATE)
    assert not ledger.accounting.amend("t1", 1, NO_USAGE)
    assert ledger.accounting.usage_of("t1") == {1: NO_USAGE}
    assert audit(ledger_url) == {}


def test_unknown_and_open_attempts_are_left_alone(ledger: Ledger, ledger_url: str) -> None:
    assert not ledger.accounting.amend("t1", 1, OBSERVED)
    claim = claimed(ledger)
    begun(ledger, claim)
    assert not ledger.accounting.amend("t1", 1, OBSERVED)
    assert not ledger.accounting.amend("t1", 2, OBSERVED)
    ledger.queue.settle(claim, a_result(), 2.0, an_end())
    assert audit(ledger_url) == {"opus": 3520}


def test_session_that_no_model_answered_in_is_observed_too(ledger: Ledger, ledger_url: str) -> None:
    completed(ledger, "t1", ESTIMATE)
    nothing = Usage({}, UsageSource.SESSION_FILES, complete=False)
    assert ledger.accounting.amend("t1", 1, nothing)
    assert not ledger.accounting.amend("t1", 1, OBSERVED)
    assert ledger.accounting.usage_of("t1") == {1: nothing}
    assert audit(ledger_url, amended=True) == {}


def test_result_stays_as_it_was_given(ledger: Ledger) -> None:
    completed(ledger, "t1", ESTIMATE)
    given = ledger.reports.result("t1")
    ledger.accounting.amend("t1", 1, OBSERVED)
    assert ledger.reports.result("t1") == given == a_result(used=ESTIMATE)


def test_earlier_attempt_is_amended_while_the_next_one_runs(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger)
    begun(ledger, claim, "s1")
    claim = tried_again(ledger, claim, an_end(1, ESTIMATE, "host_lost"), 2.0)
    begun(ledger, claim, "s2")
    assert ledger.accounting.amend("t1", 1, OBSERVED)
    ledger.queue.settle(claim, a_result(), 3.0, an_end(2))
    assert ledger.accounting.usage_of("t1") == {1: OBSERVED, 2: a_usage()}
    assert audit(ledger_url, amended=True) == {"opus": 3530, "haiku": 100}


def test_late_usage_is_billed_where_its_attempt_ended(ledger: Ledger) -> None:
    completed(ledger, "t1", ESTIMATE, now=10.0)  # booked at 15
    ledger.accounting.amend("t1", 1, OBSERVED)
    assert sum(row.spent.tokens.total for row in ledger.reports.cost(CostKey.HOST, since=15.0)) == 110
    assert ledger.reports.cost(CostKey.HOST, since=16.0) == []


def test_running_totals_never_fall(ledger: Ledger) -> None:
    """Estimates stay in their own totals: who watches them would take a smaller number for a new beginning."""
    completed(ledger, "t1", ESTIMATE)
    before = set(ledger.reports.totals().models)
    ledger.accounting.amend("t1", 1, OBSERVED)
    assert before < set(ledger.reports.totals().models)


def _amend(number: int, url: str) -> list[bool]:
    by_model = {model: ModelUsage(Tokens(number, 2, 3, 4), 0.1) for model in ("opus", "haiku")}
    with Ledger.open(url) as ledger:
        return [
            ledger.accounting.amend(f"t{turn}", 1, Usage(by_model, UsageSource.SESSION_FILES))
            for turn in range(10)
        ]


def test_amendment_raced_by_eight_happens_once(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    for turn in range(10):
        completed(ledger, f"t{turn}", ESTIMATE)
    answers = crew.together(_amend, ledger_url)
    winners = [amended.index(True) for amended in zip(*answers, strict=True)]
    assert [sum(amended) for amended in zip(*answers, strict=True)] == [1] * 10
    expected = sum(number + 9 for number in winners)
    assert audit(ledger_url, amended=True) == {"opus": expected, "haiku": expected}


def test_spools_are_told_apart(ledger: Ledger) -> None:
    request = a_request("estimated", labels={"team": "web"})
    completed(ledger, "estimated", ESTIMATE, labels={"team": "web"})
    completed(ledger, "nothing", NO_USAGE, agent="codex", host="far")
    completed(ledger, "observed", a_usage())
    begun(ledger, claimed(ledger, "open"), "spool-open", session_id="session-2", resume=True)
    found = ledger.accounting.by_spool(
        ["spool-estimated", "spool-observed", "spool-open", "spool-nothing", "foreign"]
    )
    assert len({row.seal for row in found.values()}) == 4
    assert {spool: replace(row, seal="") for spool, row in found.items()} == {
        "spool-estimated": SpoolRow(
            "estimated", 1, "local", "", "claude-code", "session-1", False, 6.0, "completed", False, request,
            None, None,
        ),
        "spool-nothing": SpoolRow(
            "nothing", 1, "far", "", "codex", "session-1", False, 6.0, "completed", False,
            a_request("nothing", agent="codex", host="far"), None, None,
        ),
        "spool-observed": SpoolRow(
            "observed", 1, "local", "", "claude-code", "session-1", False, 6.0, "completed", True, None, None, None
        ),
        "spool-open": SpoolRow(
            "open", 1, "local", "", "claude-code", "session-2", True, None, None, False, None, "w1", 1.0 + TTL
        ),
    }  # fmt: skip
    assert ledger.accounting.by_spool([]) == {}


def test_request_that_only_a_newer_runturn_can_read_hides_no_spool(ledger: Ledger) -> None:
    completed(ledger, "readable", ESTIMATE)
    completed(ledger, "newer", ESTIMATE)
    stored = json.dumps(a_request("newer").model_dump() | {"colour": "green"})
    with ledger._database.write() as connection:
        connection.execute(turns.update().where(turns.c.turn_id == "newer").values(request=stored))
    found = ledger.accounting.by_spool(["spool-readable", "spool-newer"])
    assert found["spool-readable"].request == a_request("readable")
    assert (found["spool-newer"].turn_id, found["spool-newer"].request) == ("newer", None)
    assert [spool for spool, row in found.items() if row.unreadable] == ["spool-newer"]


def test_spool_is_owned_while_its_turns_lease_is_not_over(ledger: Ledger) -> None:
    claim = claimed(ledger, now=1.0)
    begun(ledger, claim, "s1")
    row = ledger.accounting.by_spool(["s1"])["s1"]
    assert (row.unreadable, row.owned(0.9 + TTL), row.owned(1.0 + TTL)) == (False, True, False)
    ledger.queue.release([claim], 2.0)
    assert not ledger.accounting.by_spool(["s1"])["s1"].owned(2.0)


def test_amendment_while_usage_is_read_is_seen_as_a_whole_or_not_at_all(ledger: Ledger) -> None:
    completed(ledger, "t1", ESTIMATE)
    begun: list[str] = []

    def amend(_: object, __: object, statement: str, *___: object) -> None:
        if not begun and statement.startswith("SELECT"):
            begun.append(statement)
            assert ledger.accounting.amend("t1", 1, OBSERVED)

    sa.event.listen(ledger._database.engine, "after_cursor_execute", amend)
    assert ledger.accounting.usage_of("t1")[1] in (ESTIMATE, OBSERVED)
    assert begun
    assert ledger.accounting.usage_of("t1") == {1: OBSERVED}


def test_spool_whose_usage_was_amended_is_done_with(ledger: Ledger) -> None:
    completed(ledger, "t1", ESTIMATE)
    ledger.accounting.amend("t1", 1, OBSERVED)
    row = ledger.accounting.by_spool(["spool-t1"])["spool-t1"]
    assert (row.usage_observed, row.request) == (True, None)


def test_spool_of_every_attempt_is_known(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim, "t1.1")
    claim = tried_again(ledger, claim, an_end(1, NO_USAGE, "host_lost"), 2.0)
    begun(ledger, claim, "t1.2")
    found = ledger.accounting.by_spool(["t1.1", "t1.2"])
    assert {spool: (row.attempt, row.outcome) for spool, row in found.items()} == {
        "t1.1": (1, "host_lost"),
        "t1.2": (2, None),
    }

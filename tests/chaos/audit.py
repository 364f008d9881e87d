"""What has come of it all: counted from the hosts' notes, the model's bill, the ledger and the broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import orjson

from adapters.result import Status, TurnResult
from adapters.usage import ModelUsage, Tokens
from ops.errors import UnknownTurn
from ops.ledger import State
from tests.chaos.stage import Stage
from tests.chaos.workload import SONNET, Kind, Turn
from tests.model_api import Usage

_NANO = 1e-9  # US dollars, in which the ledger counts
_COMPLETE = (Kind.PLAIN, Kind.RETRIED, Kind.BROKEN, Kind.REAL)


@dataclass
class Audit:
    """The figures, in the order of the report, and what is wrong."""

    turns: int = 0
    settled: int = 0
    double_settled: int = 0
    billed_tokens: int = 0
    booked_tokens: int = 0
    billed_usd: float = 0.0
    booked_usd: float = 0.0
    duplicate_runs: int = 0
    processes_left: int = 0
    messages_left: int = 0
    event_gaps: int = 0
    faults: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int | float]:
        """For the last line of the report."""
        named = {name: value for name, value in vars(self).items() if name != "faults"}
        return {name: round(value, 9) if isinstance(value, float) else value for name, value in named.items()}


def audit(stage: Stage) -> Audit:
    """Look at everything; the workers have left."""
    found = Audit(turns=len(stage.workload.turns))
    bills = _bills(stage)
    for turn in stage.workload.turns:
        _check_turn(stage, found, turn, bills[turn.id])
    _check_totals(stage, found)
    _check_starts(stage, found)
    _check_rest(stage, found)
    return found


def _bills(stage: Stage) -> dict[str, ModelUsage]:
    """What each turn has really cost."""
    bills = {turn.id: ModelUsage(Tokens(), 0.0) for turn in stage.workload.turns}
    for spool, bill in stage.players.billed:
        turn_id = spool.rpartition(".")[0]
        for used in bill.values():
            bills[turn_id] += used
    for turn in stage.workload.turns:
        if turn.kind is Kind.REAL:
            # A message that did not reach its end is on nobody's record but the API's.
            requests = [request for request in stage.api.bill(turn.id).requests if not request.partial]
            assert {request.model for request in requests} <= {SONNET}, "a model without a price here"
            bills[turn.id] = _priced(sum((request.usage for request in requests), Usage()))
    return bills


def _priced(used: Usage) -> ModelUsage:
    """With what Anthropic charges for Sonnet: 3, 15, 0.30 and 3.75 dollars for a million tokens."""
    tokens = Tokens(used.input, used.output, used.cache_read, used.cache_creation)
    cost = used.input * 3 + used.output * 15 + used.cache_read * 0.3 + used.cache_creation * 3.75
    return ModelUsage(tokens, cost / 1e6)


def _check_turn(stage: Stage, found: Audit, turn: Turn, bill: ModelUsage) -> None:
    found.billed_tokens += bill.tokens.total
    found.billed_usd += bill.cost_usd or 0.0
    try:
        result, row = stage.ledger.result(turn.id), stage.ledger.turn(turn.id)
    except UnknownTurn:
        found.faults.append(f"{turn.id} is lost: the ledger does not know it")
        return
    if result is None or row.state is not State.SETTLED:
        found.faults.append(f"{turn.id} is not settled: {row}")
        return
    found.settled += 1
    if not _as_expected(turn, result):
        found.faults.append(f"{turn.id} is {result.status}, after {result.attempts} attempts: {result.error}")
    _check_events(stage, found, turn, result)
    spent = row.spent
    if (spent.tokens, round(spent.cost_usd or 0.0, 9)) != (bill.tokens, round(bill.cost_usd or 0.0, 9)):
        found.faults.append(
            f"{turn.id} is billed {bill}, booked {spent.tokens} for {spent.cost_usd}; {_attempts(stage, turn)}"
        )


def _as_expected(turn: Turn, result: TurnResult) -> bool:
    match turn.kind:
        case Kind.CANCELLED:
            return result.status in (Status.CANCELLED, Status.COMPLETED)
        case Kind.FAILING:
            return (
                result.status is Status.FAILED and result.error is not None and result.error.kind == "turn_failed"
            )
        case _:
            return result.status is Status.COMPLETED and turn.kind in _COMPLETE


def _check_events(stage: Stage, found: Audit, turn: Turn, result: TurnResult) -> None:
    events = [orjson.loads(line) for _, line in stage.ledger.events(turn.id)]
    numbers = [event["seq"] for event in events]
    gaps = sum(number != expected for expected, number in enumerate(numbers, 1))
    names = Counter(event["event"] for event in events)
    found.event_gaps += gaps
    if gaps:
        found.faults.append(f"{turn.id} has events {numbers}")
    if names["turn_settled"] > 1:
        found.double_settled += 1
        found.faults.append(f"{turn.id} was settled {names['turn_settled']} times")
    if result.attempts and (not names["turn_settled"] or events[-1]["event"] != "turn_settled"):
        found.faults.append(f"{turn.id} has no end: its events are {dict(names)}")
    if not names["attempt_started"] == names["attempt_ended"] == result.attempts:
        found.faults.append(f"{turn.id} has had {result.attempts} attempts, and its events are {dict(names)}")


def _check_totals(stage: Stage, found: Audit) -> None:
    """The running totals are the books."""
    totals = stage.ledger.totals()
    observed = [row for row in totals.models if row.observed]
    found.booked_tokens = sum(row.tokens.total for row in observed)
    found.booked_usd = sum(row.cost_usd or 0.0 for row in observed)
    found.double_settled += max(sum(row.turns for row in totals.outcomes) - found.settled, 0)
    if found.booked_tokens != found.billed_tokens:
        found.faults.append(f"booked are {found.booked_tokens} tokens, billed {found.billed_tokens}")
    if abs(found.booked_usd - found.billed_usd) > _NANO:
        found.faults.append(f"booked are ${found.booked_usd:.9f}, billed ${found.billed_usd:.9f}")
    if found.settled != found.turns or found.double_settled:
        found.faults.append(f"of {found.turns} turns {found.settled} are settled, {found.double_settled} twice")


def _check_starts(stage: Stage, found: Audit) -> None:
    """No attempt started its agent twice, and no agent started without an attempt, or after the turn was done."""
    starts = stage.players.starts
    twice = {spool: count for spool, count in starts.items() if count > 1}
    unknown = starts.keys() - stage.ledger.attempts_by_spool(starts.keys()).keys()
    redone = {turn_id: count for turn_id, count in stage.players.done.items() if count > 1}
    found.duplicate_runs = sum(count - 1 for count in (*twice.values(), *redone.values())) + len(unknown)
    if found.duplicate_runs:
        found.faults.append(f"started twice: {twice}; of no attempt: {unknown}; done more than once: {redone}")


def _check_rest(stage: Stage, found: Audit) -> None:
    messages = stage.broker.messages()
    found.messages_left = sum(messages.values())
    if messages:
        found.faults.append(f"left in the broker: {messages}")
    processes = stage.processes()
    found.processes_left = len(processes)
    if processes:
        found.faults.append(f"left on the hosts: {'; '.join(processes)}")
    if taken := stage.ledger.open_attempts():
        found.faults.append(f"slots that are taken: {taken}")


def _attempts(stage: Stage, turn: Turn) -> str:
    usages = stage.ledger.usage_of(turn.id)
    return "; ".join(f"attempt {number}: {usage}" for number, usage in usages.items())

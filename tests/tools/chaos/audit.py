"""Audit of a run: compares the hosts' records, the models' bills, the ledger and the broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import orjson

from adapters.protocol.result import Status, TurnResult
from adapters.usage import ModelUsage, Tokens
from ops.errors import UnknownTurn
from ops.ledger import State
from ops.ledger.reports.costs import Spent
from ops.ledger.schema import TOKEN_KINDS
from tests.tools.chaos.stage import Stage
from tests.tools.chaos.workload import AGENTS, Kind, Run, Turn

_NANO = 1e-9  # US dollars, in which the ledger counts
_COMPLETE = frozenset(Kind) - {Kind.FAILING, Kind.CANCELLED}
# What is asked of an agent, and what it asks, happens once, whoever holds its turn.
_ONCE = ("control_requested", "control_answered", "permission_answered")


@dataclass
class Audit:
    """The figures, in the order of the report, and the problems found."""

    turns: int = 0
    settled: int = 0
    double_settled: int = 0
    billed_tokens: int = 0
    booked_tokens: int = 0
    billed_usd: float = 0.0
    booked_usd: float = 0.0
    flagged_tokens: int = 0  # billed for turns that were struck, not booked, and marked as incomplete
    flagged_usd: float = 0.0
    duplicate_runs: int = 0
    agents_at_once: int = 0
    processes_left: int = 0
    messages_left: int = 0
    continuations: int = 0
    continuations_lost: int = 0
    event_gaps: int = 0
    faults: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int | float]:
        """Return the figures for the last line of the report."""
        named = {name: value for name, value in vars(self).items() if name != "faults"}
        return {name: round(value, 9) if isinstance(value, float) else value for name, value in named.items()}


def audit(stage: Stage) -> Audit:
    """Audit everything, after the workers have exited."""
    found = Audit(turns=len(stage.workload.turns))
    bills = _bills(stage)
    for turn in stage.workload.turns:
        _check_turn(stage, found, turn, bills[turn.id])
    for run in stage.workload.runs:
        _check_run(stage, found, run)
    _check_followers(stage, found)
    _check_totals(stage, found)
    _check_starts(stage, found)
    _check_rest(stage, found)
    return found


def missing(stage: Stage) -> list[str]:
    """Return the ids of the expected follow-up tasks that have not arrived."""
    return sorted(_wanted(stage) - set(stage.producer.followers.came))


def _wanted(stage: Stage) -> set[str]:
    producer, ledger = stage.producer, stage.ledger
    wanted = {f"chord-of-{left.id}.completed" for left, _ in stage.workload.chords if left.id in producer.followed}
    for task_id, asked in producer.followed.items():
        session = ledger.session_runs.find(asked.id)
        result = session.result if session is not None else ledger.reports.result(asked.id)
        follower = result and producer.followers.wanted(task_id, result)
        wanted |= {follower} if follower else set()
    return wanted


def _check_followers(stage: Stage, found: Audit) -> None:
    stage.producer.followers.gather()
    wanted, lost = _wanted(stage), missing(stage)
    found.continuations, found.continuations_lost = len(wanted), len(lost)
    if lost:
        found.faults.append(f"follow-up tasks that never arrived: {lost}")
    if unwanted := sorted(set(stage.producer.followers.came) - wanted):
        found.faults.append(f"unexpected follow-up tasks: {unwanted}")


def _bills(stage: Stage) -> dict[str, ModelUsage]:
    """Return what each turn has actually cost."""
    bills = {turn.id: ModelUsage(Tokens(), 0.0) for turn in stage.workload.turns}
    for spool, bill in stage.players.billed:
        turn_id = spool.rpartition(".")[0]
        for used in bill.values():
            bills[turn_id] += used
    for turn in stage.workload.turns:
        if turn.kind in AGENTS:
            bills[turn.id] = stage.agents.billed(AGENTS[turn.kind], turn.id)
    return bills


def _check_run(stage: Stage, found: Audit, run: Run) -> None:
    """Check a session of turns, whose turns share a bill."""
    bill, turns = stage.agents.billed(run.request.turn.agent, run.id), run.turns(stage.ledger)
    session = stage.ledger.session_runs.find(run.id)
    result = session.result if session is not None else None
    found.turns += len(turns)
    found.billed_tokens += bill.tokens.total
    found.billed_usd += bill.cost_usd or 0.0
    if result is None or (result.status, result.reason) != ("done", "tests_passed"):
        found.faults.append(f"{run.id} has the result {result}: {result and result.error}")
    booked, cost_usd = Tokens(), 0.0
    for turn in turns:
        _check_end(stage, found, turn)
        spent = stage.ledger.reports.turn(turn.id).spent
        booked, cost_usd = booked + spent.tokens, cost_usd + (spent.cost_usd or 0.0)
    if (booked, round(cost_usd, 9)) != (bill.tokens, round(bill.cost_usd or 0.0, 9)):
        attempts = "; ".join(f"{turn.id}: {_attempts(stage, turn)}" for turn in turns)
        found.faults.append(f"{run.id}: billed {bill}, booked {booked} for {cost_usd}; {attempts}")


def _check_turn(stage: Stage, found: Audit, turn: Turn, bill: ModelUsage) -> None:
    found.billed_tokens += bill.tokens.total
    found.billed_usd += bill.cost_usd or 0.0
    if not _check_end(stage, found, turn):
        return
    spent = stage.ledger.reports.turn(turn.id).spent
    if (spent.tokens, round(spent.cost_usd or 0.0, 9)) == (bill.tokens, round(bill.cost_usd or 0.0, 9)):
        return
    if turn.id in stage.struck.may_be_short and _short_and_flagged(stage, turn, bill, spent):
        found.flagged_tokens += bill.tokens.total - spent.tokens.total
        found.flagged_usd += (bill.cost_usd or 0.0) - (spent.cost_usd or 0.0)
        return
    found.faults.append(
        f"{turn.id}: billed {bill}, booked {spent.tokens} for {spent.cost_usd}; {_attempts(stage, turn)}"
    )


def _short_and_flagged(stage: Stage, turn: Turn, bill: ModelUsage, spent: Spent) -> bool:
    """Return True if nothing unbilled is booked, and the turn's result says that something is missing."""
    result = stage.ledger.reports.result(turn.id)
    return (
        result is not None
        and not result.usage_complete
        and all(getattr(spent.tokens, kind) <= getattr(bill.tokens, kind) for kind in TOKEN_KINDS)
        and (spent.cost_usd or 0.0) <= (bill.cost_usd or 0.0) + _NANO
    )


def _check_end(stage: Stage, found: Audit, turn: Turn) -> bool:
    """Check a turn's result; return False if it was never settled."""
    try:
        result, row = stage.ledger.reports.result(turn.id), stage.ledger.reports.turn(turn.id)
    except UnknownTurn:
        found.faults.append(f"{turn.id} is lost: it is not in the ledger")
        return False
    if result is None or row.state is not State.SETTLED:
        found.faults.append(f"{turn.id} is not settled: {row}")
        return False
    found.settled += 1
    if not _as_expected(turn, result):
        found.faults.append(f"{turn.id} is {result.status} after {result.attempts} attempts: {result.error}")
    if turn.kind is Kind.BROUGHT and not _brought_home(result):
        found.faults.append(f"{turn.id} has returned the wrong changes: {result.collected}")
    _check_events(stage, found, turn, result)
    return True


def _brought_home(result: TurnResult) -> bool:
    collected = result.collected
    if collected is None or collected.problem is not None or "made" not in collected.files:
        return False
    return collected.files["made"].text == "made\n" and "+made\n" in (collected.patch or "")


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
    events = [orjson.loads(line) for _, line in stage.ledger.events.after(turn.id)]
    numbers = [event["seq"] for event in events]
    gaps = sum(number != expected for expected, number in enumerate(numbers, 1))
    names = Counter(event["event"] for event in events)
    found.event_gaps += gaps
    if gaps:
        found.faults.append(f"{turn.id} has gaps in its events: {numbers}")
    words = Counter((each["event"], each["request_id"]) for each in events if each["event"] in _ONCE)
    if again := {word: count for word, count in words.items() if count > 1}:
        found.faults.append(f"{turn.id} has repeated events: {again}")
    if names["turn_settled"] > 1:
        found.double_settled += 1
        found.faults.append(f"{turn.id} was settled {names['turn_settled']} times")
    if result.attempts and (not names["turn_settled"] or events[-1]["event"] != "turn_settled"):
        found.faults.append(f"{turn.id} does not end with turn_settled: its events are {dict(names)}")
    if not names["attempt_started"] == names["attempt_ended"] == result.attempts:
        found.faults.append(f"{turn.id} had {result.attempts} attempts, but its events are {dict(names)}")


def _check_totals(stage: Stage, found: Audit) -> None:
    """Check the ledger's running totals against the bills."""
    totals = stage.ledger.reports.totals()
    observed = [row for row in totals.models if row.observed]
    found.booked_tokens = sum(row.tokens.total for row in observed)
    found.booked_usd = sum(row.cost_usd or 0.0 for row in observed)
    found.double_settled += max(sum(row.turns for row in totals.outcomes) - found.settled, 0)
    due_tokens, due_usd = found.billed_tokens - found.flagged_tokens, found.billed_usd - found.flagged_usd
    if found.booked_tokens != due_tokens:
        found.faults.append(f"booked {found.booked_tokens} tokens of {due_tokens}")
    if abs(found.booked_usd - due_usd) > _NANO:
        found.faults.append(f"booked ${found.booked_usd:.9f} of ${due_usd:.9f}")
    if found.settled != found.turns or found.double_settled:
        found.faults.append(f"{found.settled} of {found.turns} turns are settled, {found.double_settled} twice")


def _check_starts(stage: Stage, found: Audit) -> None:
    """Check that no attempt started its agent twice, and none started without an attempt or after a success.

    A success whose spool was removed may never have been read. No turn may have two agents at once.
    """
    starts = stage.players.starts
    twice = {spool: count for spool, count in starts.items() if count > 1}
    unknown = starts.keys() - stage.ledger.accounting.by_spool(starts.keys()).keys()
    done = Counter(spool.rpartition(".")[0] for spool in stage.players.done if spool not in stage.struck.removed)
    redone = {turn_id: count for turn_id, count in done.items() if count > 1}
    found.duplicate_runs = sum(count - 1 for count in (*twice.values(), *redone.values())) + len(unknown)
    if found.duplicate_runs:
        found.faults.append(
            f"started twice: {twice}; without an attempt: {unknown}; completed more than once: {redone}"
        )
    overlaps = stage.players.overlaps
    found.agents_at_once = len(overlaps)
    if overlaps:
        found.faults.append(f"started while another agent of the turn was running: {overlaps}")


def _check_rest(stage: Stage, found: Audit) -> None:
    messages = stage.broker.messages()
    found.messages_left = sum(messages.values())
    if messages:
        found.faults.append(f"left in the broker: {messages}")
    processes = stage.processes()
    found.processes_left = len(processes)
    if processes:
        found.faults.append(f"left on the hosts: {'; '.join(processes)}")
    if taken := stage.ledger.hosts.open_attempts():
        found.faults.append(f"slots still taken: {taken}")


def _attempts(stage: Stage, turn: Turn) -> str:
    usages = stage.ledger.accounting.usage_of(turn.id)
    return "; ".join(f"attempt {number}: {usage}" for number, usage in usages.items())

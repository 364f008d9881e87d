"""One run: calm, storm, recovery, audit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from tests.support.waiting import until
from tests.tools.chaos.audit import audit, missing
from tests.tools.chaos.blows.targets import ChooseTargets, everything
from tests.tools.chaos.form import Form
from tests.tools.chaos.report import Report
from tests.tools.chaos.speaker import Speaker
from tests.tools.chaos.stage import OpenBroker, Stage, open_stage
from tests.tools.chaos.storm import Storm
from tests.tools.chaos.watcher import Watcher
from tests.tools.chaos.workload import Kind, Run, Turn, settled

log = structlog.get_logger(__name__)


def perform(
    form: Form, root: Path, name: str, open_broker: OpenBroker, seed: int, targets: ChooseTargets = everything
) -> Report:
    """Run everything in an empty directory, `root`. A wait that times out becomes one of the report's faults."""
    rng = random.Random(seed)
    began_at = time.monotonic()
    with open_stage(form, root, open_broker, rng) as stage:
        storm = Storm(stage, targets(stage, rng), rng)
        stage.crew.wait_ready(form.recovery_s)
        log.info("the storm is coming", broker=name, root=str(root))
        watchers = _storm(stage, storm)
        log.info("the storm is over", blows=len(storm.log), sent=len(stage.producer.sent))
        faults = _recover(stage, watchers)
        found = audit(stage)
        found.faults += [*stage.crew.faults, *faults]
        turns = [*stage.workload.turns, *(turn for run in stage.workload.runs for turn in run.turns(stage.ledger))]
        attempts = sum(result.attempts for turn in turns if (result := stage.ledger.reports.result(turn.id)))
        spools = len(stage.spooled())
        log.info("errors logged by workers", errors=dict(stage.crew.errors()))
    return Report(
        broker=name,
        seed=seed,
        form=form,
        audit=found,
        blows=storm.log,
        exits_s=stage.crew.exits_s,
        attempts=attempts,
        workers=len(stage.crew.all),
        spools=spools,
        took_s=time.monotonic() - began_at,
    )


def _storm(stage: Stage, storm: Storm) -> list[Watcher]:
    """Run until the last blow is over and the last turn is sent."""
    producer, turns = stage.producer, stage.workload.turns
    producer.plan([*turns, *stage.workload.runs])
    producer.send_chords(stage.workload.chords)
    watched = [turn.id for turn in turns if turn.kind is not Kind.CANCELLED][: stage.form.watchers]
    for turn in turns:
        if turn.kind is Kind.LIVE:
            Speaker(producer.client, stage.ledger, turn.id, stage.story)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(producer.play)
        try:
            watchers = [Watcher(producer.client, stage.ledger, turn_id) for turn_id in watched]
            storm.rage()
            sending.result(timeout=stage.form.recovery_s)
        finally:
            producer.stop()
    return watchers


def _recover(stage: Stage, watchers: list[Watcher]) -> list[str]:
    """Wait until all work is done, then stop the workers; return the problems found."""
    form, ledger, producer = stage.form, stage.ledger, stage.producer
    stage.crew.wait_ready(form.recovery_s)
    asked = [*stage.workload.turns, *stage.workload.runs]
    open_turns: dict[str, Turn | Run] = {each.id: each for each in asked}

    def all_settled() -> bool:
        for each in [each for each in open_turns.values() if settled(ledger, each)]:
            del open_turns[each.id]
        return not open_turns

    faults = _waited(stage, all_settled, lambda: f"unsettled turns: {sorted(open_turns)}")
    for turn, sending in stage.workload.late():
        producer.send(turn, sending)
    unanswered = set(producer.sent)

    def all_answered() -> bool:
        unanswered.difference_update({task_id for task_id in unanswered if producer.answered(task_id)})
        return not unanswered

    faults += _waited(stage, all_answered, lambda: f"unanswered tasks: {sorted(unanswered)}")
    faults += _waited(
        stage,
        lambda: producer.followers.gather() or not missing(stage),
        lambda: f"missing follow-up tasks: {missing(stage)}",
    )
    faults += _waited(stage, lambda: not stage.processes(), lambda: f"processes: {stage.processes()}")
    faults += _waited(
        stage,
        lambda: producer.followers.gather() or not stage.broker.messages(),
        lambda: f"messages: {stage.broker.messages()}",
    )
    faults += _missed(stage, watchers)
    stage.crew.dismiss()
    faults += _waited(
        stage, lambda: not stage.broker.listeners(), lambda: f"listeners: {stage.broker.listeners()}"
    )
    late = [f"{exit_s:.1f} s" for exit_s in stage.crew.exits_s if exit_s > form.exit_s]
    return faults + [f"workers took {', '.join(late)} to exit; {form.exit_s:.0f} s are allowed"] * bool(late)


def _waited(stage: Stage, condition: Callable[[], bool], what: Callable[[], str]) -> list[str]:
    """Wait for the condition; return what is left if it does not come true in time."""
    left = what()
    began_at = time.monotonic()
    try:
        until(condition, left, stage.form.recovery_s)
    except AssertionError:
        return [what()]
    stage.story.tell(f"{time.monotonic() - began_at:.1f} s later, none of these are left: {left:.200}")
    return []


def _missed(stage: Stage, watchers: list[Watcher]) -> list[str]:
    faults = []
    for watcher in watchers:
        stored = [seq for seq, _ in stage.ledger.events.after(watcher.turn_id)]
        if not watcher.join(30.0) or watcher.error or watcher.seen != stored:
            faults.append(f"watcher of {watcher.turn_id}: {watcher.error}, saw {watcher.seen} of {stored}")
    return faults

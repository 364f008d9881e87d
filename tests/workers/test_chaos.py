"""Thirty-five turns while workers and the broker are killed, told to stop and cut off at random moments.

Whatever happens: every turn gets one result, every attempt starts one agent, no event is missing, what is booked
is what was billed, and nothing is left behind.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from adapters.request import TurnRequest
from adapters.result import Status, TurnResult
from tests.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.model_api.cli import claude_binary, claude_environment
from tests.waiting import until
from tests.workers.fleet import WAIT_S, Fleet, Worker, slow_recording
from tests.workers.test_bills import SONNET, billed, booked, in_ledger
from tests.workers.test_broker import _drop_connections, _kill_broker
from workers.app import QUEUE, TASK, create_app

SCRIPTED, REAL = 30, 5
BLOWS = 14

SCRIPTS = tuple(
    Script(
        f"real{n}",
        (
            Reply((replies.bash("sleep 2"),), Usage(100 + n, 20 + n, 30 + n, 4 + n)),
            Reply((replies.bash("sleep 2"),), Usage(200 + n, 30 + n, 40 + n, 5 + n)),
            Reply((Text("done"),), Usage(300 + n, 40 + n, 50 + n, 6 + n)),
        ),
    )
    for n in range(REAL)
)


class Storm:
    """What happens to a fleet, one seeded blow after the other; there are always two workers."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._rng = random.Random(seed)
        self._workers = [fleet.start_worker(), fleet.start_worker()]
        self._leaving: list[Worker] = []
        self._blows: list[Callable[[], None]] = [
            self._kill_worker,
            self._kill_worker,
            self._stop_worker,
            self._stop_worker,
            self._kill_broker,
            self._cut_connections,
        ]

    def rage(self, turns: list[str]) -> None:
        """All the blows, at random moments; two turns are cancelled meanwhile."""
        cancelled = self._rng.sample(range(BLOWS), 2)
        for number in range(BLOWS):
            self._let_run()
            self._rng.choice(self._blows)()
            if number in cancelled:
                self._fleet.client.cancel(self._rng.choice(turns[:SCRIPTED]))

    def calm_down(self) -> None:
        """Those that were told to stop have left in order."""
        assert {worker.wait(30) for worker in self._leaving} <= {0}

    def _let_run(self) -> None:
        """Until a moment that nobody has chosen for its sake: that is the point."""
        threading.Event().wait(self._rng.uniform(0.0, 0.7))

    def _kill_worker(self) -> None:
        self._one_less().kill()
        self._workers.append(self._fleet.start_worker())

    def _stop_worker(self) -> None:
        worker = self._one_less()
        worker.terminate()
        self._leaving.append(worker)
        self._workers.append(self._fleet.start_worker())

    def _one_less(self) -> Worker:
        return self._workers.pop(self._rng.randrange(len(self._workers)))

    def _kill_broker(self) -> None:
        _kill_broker(self._fleet)
        self._fleet.broker.ensure()

    def _cut_connections(self) -> None:
        _drop_connections(self._fleet)


@contextmanager
def counting_fleet(root: Path) -> Iterator[tuple[Fleet, ModelApi]]:
    """A fleet whose agents leave a line with their spool in a file when they are started."""
    binary = claude_binary()
    assert binary is not None, "the Claude Code CLI is missing; it comes with claude-agent-sdk"
    programs, home = root / "bin", root / "home"
    programs.mkdir()
    home.mkdir()
    for name, program in (("awk", shutil.which("awk")), ("claude", binary)):
        counting = programs / name
        counting.write_text(f'#!/bin/sh\necho "$RUNTURN_SPOOL" >>{root}/starts\nexec {program} "$@"\n')
        counting.chmod(0o755)
    with ModelApi(*SCRIPTS) as api:
        variables = claude_environment(api.base_url, home, max_retries=1)
        variables["PATH"] = f"{programs}:{os.environ['PATH']}"
        with Fleet(root, variables, agent__command=str(programs / "claude")) as fleet:
            yield fleet, api


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [20261121])
def test_no_storm_costs_a_turn_or_a_token(tmp_path: Path, recording: Path, seed: int) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 500)
    with counting_fleet(tmp_path) as (fleet, api):
        storm = Storm(fleet, seed)
        requests = [fleet.recorded(slow) for _ in range(SCRIPTED)]
        requests += [
            fleet.request(f"do it [script:real{n}]", options={"model": SONNET}, turn_id=f"real{n}")
            for n in range(REAL)
        ]
        for request in requests[:SCRIPTED]:
            fleet.client.enqueue(request)
        _send_by_name(fleet, requests[SCRIPTED:])
        turns = [request.turn_id for request in requests]
        storm.rage(turns)
        results = {turn_id: fleet.result(turn_id) for turn_id in turns}
        storm.calm_down()
        for turn_id in turns:
            _assert_ran_once(fleet, results[turn_id])
        for n in range(REAL):
            result = results[f"real{n}"]
            assert (result.status, result.usage_complete) == (Status.COMPLETED, True)
            assert booked(result) == in_ledger(fleet, result.turn_id) == billed(api, f"real{n}")
        _assert_totals(fleet, list(results.values()))
        started = Counter((tmp_path / "starts").read_text().split())
        assert set(started.values()) == {1}, started
        assert len(started) == sum(result.attempts for result in results.values())
        _assert_answered(fleet, turns)
        _assert_nothing_left(fleet)


def _send_by_name(fleet: Fleet, requests: list[TurnRequest]) -> None:
    """As a producer does that knows nothing but Celery."""
    app = create_app(fleet.broker.url)
    for request in requests:
        document = request.model_dump(mode="json", exclude_defaults=True)
        app.send_task(TASK, args=[document], task_id=request.turn_id).backend = None


def _assert_ran_once(fleet: Fleet, result: TurnResult) -> None:
    events = fleet.events(result.turn_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    names = Counter(event["event"] for event in events)
    assert names["attempt_started"] == names["attempt_ended"] == result.attempts <= 1
    assert names["turn_settled"] <= 1
    if result.status is Status.COMPLETED:
        assert names["session_started"] == names["turn_settled"] == 1
    else:
        assert result.status is Status.CANCELLED, result.error


def _assert_totals(fleet: Fleet, results: list[TurnResult]) -> None:
    totals = fleet.ledger.totals()
    observed = sum(row.tokens.total for row in totals.models if row.observed)
    reported = [result.usage for result in results if result.usage_source.observed]
    assert observed == sum(
        used.input_tokens + used.output_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens
        for used in reported
    )
    assert sum(row.turns for row in totals.outcomes) == len(results)


def _assert_answered(fleet: Fleet, turns: list[str]) -> None:
    app = create_app(fleet.broker.url)
    for turn_id in turns:
        answer = app.AsyncResult(turn_id)
        assert answer.get(timeout=WAIT_S)["turn_id"] == turn_id
        answer.backend = None  # its destructor would talk to a broker that is gone by then


def _assert_nothing_left(fleet: Fleet) -> None:
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        until(lambda: not client.hlen("unacked") and not client.llen(QUEUE), "all messages to be acked", WAIT_S)
    fleet.start_worker()  # every new one looks for what others have left
    fleet.assert_nothing_left()

"""Test commands of a session of turns, run on a turn's host after its agent has exited and before it is settled.

A worker killed during the run leaves the attempt open: the next one reads the agent's output again, terminates
what is left of the commands, and runs them again. A worker frozen during the run leaves its successor's alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import orjson
import structlog

from adapters.command import Command
from adapters.contract import Judgement
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import Check
from ops.ledger import Attempt, Claim
from remote.errors import SpawnRefused
from remote.test_command import end_checks, run_check
from workers.context import WorkerContext
from workers.events.model import CheckFinished
from workers.hosts.errors import tolerant, turn_error
from workers.hosts.inventory import TurnHost
from workers.ledger_calls import LedgerCalls, WorkerStopping
from workers.turn.attempt import AttemptRun

MAX_TAIL = 4096  # characters
_READ = 2 * MAX_TAIL  # bytes; the first, cut line is dropped: part of a secret in it would not be recognised
_LOOK_S = 0.2  # between checks whether the turn must end
_LEFT_S = 2.0  # for the answer of a terminated command
_KILLED = 137

log = structlog.get_logger(__name__)


class CheckRunner:
    """Test commands of one attempt whose agent has exited."""

    def __init__(
        self, context: WorkerContext, claim: Claim, attempt: Attempt, run: AttemptRun, ledger_call: LedgerCalls
    ) -> None:
        self._context = context
        self._claim = claim
        self._attempt = attempt
        self._run = run
        self._ledger_call = ledger_call
        self._host: TurnHost = context.hosts.get(attempt.host)
        self._spool = self._host.spool(attempt.spool_id)

    async def after(self, judged: Judgement, command: Command) -> tuple[Judgement, tuple[Check, ...]]:
        """Run them unless the agent has failed; return the judgement, changed if the turn was cancelled meanwhile.

        Raises WorkerStopping and HostError, after which the turn must come back.
        """
        if self._claim.session_run is None:
            return judged, ()
        first_seq = self._run.next_seq
        stored = await self._stored(first_seq)
        checks: list[Check] = []
        try:
            if judged.error is None:
                await self._run_all(command, checks)
        except SpawnRefused as refusal:
            return replace(judged, error=turn_error(refusal)), tuple(checks)
        finally:
            # An earlier worker may have stored more of them than we have run.
            self._run.recorder.go_on_from(first_seq + max(len(checks), stored))
        return replace(judged, error=judged.error or self._run.ending.why), tuple(checks)

    async def _run_all(self, command: Command, checks: list[Check]) -> None:
        session = await self._ledger_call(self._context.ledger.session_runs.find, self._claim.session_run or "")
        assert session is not None and session.request is not None  # noqa: S101 - its turn is open
        for each in session.request.test_commands:
            if self._run.ending.why is not None:
                return
            check = await self._check(each, session.request, command)
            if check is None:
                return
            checks.append(check)
            self._emit(check)

    async def _check(self, text: str, request: SessionRequest, agent: Command) -> Check | None:
        """Run one command; None: the turn must end."""
        context = self._context
        limit_s, began = request.check_timeout_ms / 1000, context.monotonic()
        if request.deadline_at is not None:
            limit_s = min(limit_s, request.deadline_at - context.clock())
        if limit_s <= 0:
            return Check(command=text, exit=None, duration_ms=0)
        await self._assert_ours()
        env = {name: context.environ[name] for name in self._names if name in context.environ}
        running = asyncio.create_task(
            run_check(
                self._host.host,
                self._spool,
                self._claim.epoch,
                agent,
                text,
                env,
                containment=self._host.containment(self._claim.request),
                timeout_s=limit_s,
                tail=_READ,
            )
        )
        try:
            while not running.done() and self._run.ending.why is None and not self._ledger_call.leaving:
                await asyncio.wait((running,), timeout=_LOOK_S)
            if not running.done():
                if not self._run.held:
                    await self._assert_ours()
                await tolerant(end_checks(self._host.host, self._spool, self._claim.epoch), None)
                await asyncio.wait((running,), timeout=_LEFT_S)
                if self._ledger_call.leaving:
                    raise WorkerStopping
                return None
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        took_s = context.monotonic() - began
        output = running.result()
        await self._assert_ours()  # otherwise the next worker terminated it
        late = output.exit == _KILLED and took_s >= limit_s
        log.info("test command finished", exit=None if late else output.exit, seconds=round(took_s, 1))
        return Check(
            command=text,
            exit=None if late else output.exit,
            duration_ms=round(took_s * 1000),
            tail=self._tail(output.stdout),
        )

    async def _assert_ours(self) -> None:
        """Raise StaleClaim if another worker has the turn: commands running on the host are then that worker's."""
        ledger = self._context.ledger
        await self._ledger_call(ledger.events.append, self._claim, self._attempt.first_seq, ())

    @property
    def _names(self) -> Sequence[str]:
        """Names of the worker's variables that the commands see; none that the agent logs in with."""
        return (*self._host.forward_env, *self._claim.request.env)

    def _tail(self, printed: bytes) -> str:
        if len(printed) >= _READ:
            printed = printed.partition(b"\n")[2] or printed[MAX_TAIL:]
        return self._run.redacted(printed).replace("\0", "\N{REPLACEMENT CHARACTER}")[-MAX_TAIL:]

    def _emit(self, check: Check) -> None:
        event = CheckFinished(check.command, check.exit, check.duration_ms, check.tail)
        self._run.recorder.tell([event])

    async def _stored(self, first_seq: int) -> int:
        """Return how many of them an earlier worker has stored."""
        await self._ledger_call(self._context.event_writer.flush, self._claim.turn_id)
        lines = await self._ledger_call(self._context.ledger.events.after, self._claim.turn_id, first_seq - 1)
        return sum(orjson.loads(line)["event"] == CheckFinished.name for _, line in lines)

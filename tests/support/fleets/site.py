"""One machine's turns without a broker: workers are values in this process, and a test can stop one anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapters.command import Command
from adapters.contract import Adapter, Session
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.registry import Registry
from adapters.replay_agent import ReplayAgent
from ops.ledger import Claim, Ledger, LedgerClock
from ops.ledger.repository import Repository
from ops.metrics import WorkerMetrics, new_registry
from ops.settings import AgentSettings, Settings
from remote.local import LocalHost
from tests.support.claiming import claim_turn
from tests.support.ledgers import new_ledger
from tests.support.waiting import lines_of
from workers.agents.registry import build_registry
from workers.context import WorkerContext
from workers.events.writer import EventWriter
from workers.hosts.inventory import Hosts, TurnHost
from workers.turn.run import RunOutcome, RunTurn
from workers.turn.settlement import Parked
from workers.worker.claims import OWNER_TTL_S


@functools.cache
def claude_code() -> Adapter:
    """Looking for the agents of an installation takes longer than a turn."""
    return build_registry(Settings()).get("claude-code")


class Killed(BaseException):
    """What ends a worker in the middle of a call. Nothing of runturn catches it."""


class Hooked:
    """A ledger whose operations are announced to `hook`, by name, before and after they are done."""

    def __init__(self, hooked: Ledger | Repository, hook: Callable[[str], None], prefix: str = "") -> None:
        self._hooked = hooked
        self._hook = hook
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._hooked, name)
        if isinstance(operation, LedgerClock):
            return operation
        if isinstance(operation, Repository):
            return Hooked(operation, self._hook, f"{name}.")

        def call(*args: Any, **kwargs: Any) -> Any:
            self._hook(f"before {self._prefix}{name}")
            done = operation(*args, **kwargs)
            self._hook(f"after {self._prefix}{name}")
            return done

        return call


class Counted(ReplayAgent):
    """The agent `scripted`, which leaves a line in a file whenever it is started."""

    def __init__(self, recorded: Adapter, starts: Path) -> None:
        super().__init__(recorded)
        self._starts = starts

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        command = super().build(request, session)
        count = ("sh", "-c", 'echo started >>"$0"; exec "$@"', str(self._starts))
        return replace(command, argv=(*count, *command.argv))


class Nobody:
    """Watches no events."""

    def publish(self, turn_id: str, first_seq: int, events: list[bytes]) -> None:
        """Nobody hears of it."""


class Site:
    """A ledger, a spool root, a workspace; as many workers as wanted. Time may be moved on."""

    def __init__(self, root: Path, url: str | None = None) -> None:
        self.root = root
        self.spool = root / "spool"
        self.workspace = root / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.ledger = Ledger.open(url or new_ledger(f"sqlite:///{root}/ledger.db"))
        self.later = 0.0  # seconds that the workers' clocks are ahead
        self.looks: list[float] = []  # every time that somebody looked at them
        agent = AgentSettings(read_timeout_ms=60_000, retry_backoff_ms=1)
        self._settings = Settings(state_dir=root, agent=agent)
        self._registry = Registry([claude_code(), Counted(claude_code(), root / "starts")])
        self._owners = 0
        self._pumps: list[EventWriter] = []

    def close(self) -> None:
        """Once no turn runs any more."""
        for event_writer in self._pumps:
            with contextlib.suppress(Killed):
                event_writer.close()
        self.ledger.close()

    def now(self) -> float:
        """What the workers' clocks show."""
        self.looks.append(time.time() + self.later)
        return self.looks[-1]

    def worker(self, hook: Callable[[str], None] = lambda _: None) -> WorkerContext:
        """A worker; `hook` is told of everything that it is about to do, and has done, with the ledger."""
        ledger: Any = Hooked(self.ledger, hook)
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.root), "TMPDIR": tempfile.gettempdir()}
        local = LocalHost(kept)
        event_writer = EventWriter(ledger, Nobody())  # type: ignore[arg-type]
        self._pumps.append(event_writer)
        return WorkerContext(
            settings=self._settings,
            ledger=ledger,
            registry=self._registry,
            hosts=Hosts([TurnHost(local, str(self.spool))]),
            event_writer=event_writer,
            metrics=WorkerMetrics(new_registry()),
            environ=os.environ,
            clock=self.now,
        )

    def request(self, **fields: Any) -> TurnRequest:
        """A request for the agent `scripted`."""
        document = {"prompt": "do it", "workspace": str(self.workspace), "agent": "scripted", **fields}
        return TurnRequest.parse(document)

    def queue(self, **fields: Any) -> str:
        """A new turn of the agent `scripted`."""
        request = self.request(**fields)
        self.ledger.queue.submit_many([request], self.now())
        return request.turn_id

    def claim(self, turn_id: str) -> Claim:
        """The turn for a new worker, after the lease of the last one has run out."""
        self._owners += 1
        self.later += OWNER_TTL_S + 1
        claim = claim_turn(self.ledger, turn_id, f"worker-{self._owners}", self.now(), OWNER_TTL_S)
        assert isinstance(claim, Claim), claim
        return claim

    async def finish(self, turn_id: str) -> TurnResult:
        """Let new workers work on the turn until it is settled."""
        while True:
            outcome = await self.work(turn_id)
            if isinstance(outcome, TurnResult):
                return outcome
            assert isinstance(outcome, Parked), outcome
            await asyncio.sleep(0)

    @property
    def starts(self) -> int:
        """How often an agent was started."""
        return len(lines_of(self.root / "starts"))

    async def work(self, turn_id: str, hook: Callable[[str], None] = lambda _: None) -> RunOutcome:
        """Let one new worker work on the turn."""
        return await RunTurn(self.worker(hook), self.claim(turn_id)).drive()

    def events(self, turn_id: str) -> list[str]:
        """All that the ledger has, as text."""
        return [line.decode() for _, line in self.ledger.events.after(turn_id)]

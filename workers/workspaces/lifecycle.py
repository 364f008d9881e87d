"""The workspace that a turn brings: created before its agent starts, collected after it exits, removed in the end.

It is on the attempt's host, in a directory named after the turn, so that later attempts and other workers find it.
The ledger records it before the agent starts, and has the result before it is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import PurePosixPath

import structlog

from adapters import errors
from adapters.contract import Session
from adapters.errors import InvalidRequest, TurnError
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Collected, TurnResult
from adapters.protocol.workspace import was_made
from ops.ledger import Attempt, Claim
from ops.redaction import Redactor
from remote.errors import HostError
from remote.tar_stream import Entry, SourceChanged
from remote.workspaces import Place, make_of_files, make_worktree, remove_workspace
from workers.context import WorkerContext
from workers.hosts.errors import tolerant, turn_error
from workers.hosts.inventory import TurnHost
from workers.ledger_calls import LedgerCalls, WorkerStopping
from workers.limits import Limits
from workers.workspaces.artifacts import collected
from workers.workspaces.mounts import check_mounts, chosen

log = structlog.get_logger(__name__)


class Workspaces:
    """Workspaces of one claimed turn. Does nothing for turns that bring none."""

    def __init__(self, context: WorkerContext, claim: Claim, ledger_call: LedgerCalls) -> None:
        self._context = context
        self._claim = claim
        self._request: TurnRequest = claim.request
        self._ledger_call = ledger_call
        self._making: asyncio.Task[str] | None = None
        self._stopped = False
        self._collected: Collected | None = None
        made = [attempt for attempt in claim.attempts if attempt.workspace is not None]
        self._hosts = [attempt.host for attempt in claim.attempts]  # where there may be something to remove
        self._at: tuple[str, str] | None = (made[-1].host, made[-1].workspace or "") if made else None
        if not self._request.brings_workspace and claim.last is not None:
            self._at = (claim.last.host, self._request.workspace)

    async def check(self) -> None:
        """Raise InvalidRequest if the turn may not bring its mounts."""
        if self._request.mounts:
            await asyncio.to_thread(check_mounts, self._request.mounts, self._context.settings.mount_roots)

    async def bring(self, attempt: Attempt, host: TurnHost) -> TurnRequest:
        """Return the request in its workspace, created on the host if needed. Raises TurnError, WorkerStopping."""
        if not self._request.brings_workspace:
            self._at = (attempt.host, self._request.workspace)
            return self._request
        self._hosts.append(attempt.host)
        path = attempt.workspace
        if path is None:
            path = await self._make(attempt, host)
            await self._ledger_call(self._context.ledger.workspaces.place, self._claim, path)
        self._at = (attempt.host, path)
        return self._request.working_in(path)

    def stop(self) -> None:
        """Stop creating it, or do not begin: what exists of it is a draft."""
        self._stopped = True
        if self._making is not None:
            self._making.cancel()

    async def collect(self, host: TurnHost, redactor: Redactor) -> None:
        """Collect what the request wants of it, once the agent has exited. Raises HostUnreachable."""
        if self._request.collect is not None:
            self._collected = await collected(host.host, self._place(host), self._request.collect, redactor)

    async def complete(self, result: TurnResult) -> TurnResult:
        """Return the result with the kept workspace and what was collected."""
        if self._at is None:
            return result
        host, path = self._at
        kept = path if await self._kept(path) else None
        if self._request.collect is not None and self._collected is None:
            self._collected = await self._collected_late(self._context.hosts.get(host))
        return result.model_copy(update={"workspace": kept, "collected": self._collected})

    async def _kept(self, path: str) -> bool:
        """Return whether later turns find it there: this turn's own, or one that an earlier turn brought."""
        if self._request.brings_workspace or not was_made(path):
            return self._request.keep_workspace
        made = await self._ledger_call(self._context.ledger.workspaces.made, PurePosixPath(path).parent.name)
        return made is not None and made.kept and made.path == path

    async def remove(self) -> None:
        """Remove it unless the request keeps it. If its host is unreachable now, host cleanup finds it later."""
        if not self._request.brings_workspace:
            return
        keep = self._at[0] if self._at is not None and self._request.keep_workspace else None
        for name in dict.fromkeys(self._hosts):
            host = self._context.hosts.get(name)
            if name != keep and host.host.rest_s == 0:
                await tolerant(remove_workspace(host.host, host.made(self._claim.turn_id)), None)

    def _place(self, host: TurnHost) -> Place:
        """Return where its workspace is: this turn's own, or an earlier turn's that was kept."""
        if self._request.brings_workspace:
            return host.made(self._claim.turn_id)
        made = PurePosixPath(self._request.workspace).parent
        return Place(str(made.parent), made.name)

    async def _collected_late(self, host: TurnHost) -> Collected:
        """Collect for a turn whose agent was not followed to its end."""
        try:
            await self.collect(host, self._redactor())
        except (HostError, TurnError) as fault:
            return Collected(problem=str(fault))
        return self._collected or Collected()

    def _redactor(self) -> Redactor:
        """Return a redactor of all secrets that an agent of this turn can have received.

        Raise TurnError if they cannot be determined.
        """
        assert self._at is not None  # noqa: S101 - an agent has run
        adapter = self._context.registry.get(self._request.agent)
        command = adapter.build(self._request.working_in(self._at[1]), Session("", resume=False))
        known = self._context.secrets.and_of_environment(self._context.environ)
        return known.and_of_environment(command.env).and_of_files(command.files)

    async def _make(self, attempt: Attempt, host: TurnHost) -> str:
        """Create it in time, unless stopped."""
        if self._stopped:
            raise WorkerStopping
        self._making = asyncio.create_task(self._made(host))
        left_s = self._left_s(attempt)
        await asyncio.wait([self._making], timeout=max(0.0, left_s))
        if not self._making.done():
            self._making.cancel()
            await asyncio.wait([self._making])
            raise self._too_late()
        if self._making.cancelled():
            raise WorkerStopping
        return self._making.result()

    async def _made(self, host: TurnHost) -> str:
        request, place = self._request, self._place(host)
        wants_patch = request.collect is not None and request.collect.patch
        try:
            if request.worktree is not None:
                tree = request.worktree
                return await make_worktree(host.host, place, tree.repository, tree.ref, host.workspace_roots)
            return await make_of_files(host.host, place, self._chosen, wants_patch=wants_patch)
        except HostError as fault:
            raise turn_error(fault) from fault
        except (OSError, SourceChanged) as error:
            raise InvalidRequest(f"a file could not be copied: {error}", field="mounts") from error

    async def _chosen(self) -> Sequence[Entry]:
        return await asyncio.to_thread(chosen, self._request.mounts, self._context.settings.mount_roots)

    def _left_s(self, attempt: Attempt) -> float:
        limits = Limits.of(self._request, self._context.settings.agent, caps_cost_itself=True)
        ends = [attempt.started_at + limits.turn_timeout_s, limits.deadline_at]
        return min(end for end in ends if end is not None) - self._context.clock()

    def _too_late(self) -> TurnError:
        deadline = self._request.deadline_at
        if deadline is not None and self._context.clock() >= deadline:
            return errors.DeadlineExceeded("the deadline passed while its workspace was being created")
        return errors.TurnTimeout("its workspace was not created within turn_timeout_ms")

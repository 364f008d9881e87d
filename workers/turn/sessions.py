"""Chooses the session of a turn's next attempt, and builds the command that runs in it."""

from __future__ import annotations

import uuid
from dataclasses import replace

from adapters import errors
from adapters.command import Command
from adapters.contract import Adapter, Session
from adapters.protocol.plan import instructed
from adapters.protocol.request import TurnRequest
from ops.ledger import Attempt, Claim, InUse, SessionRow
from ops.tracing import agent_environment
from workers.context import WorkerContext
from workers.hosts.inventory import TurnHost
from workers.ledger_calls import LedgerCalls


class AttemptSession:
    """Sessions of one claimed turn."""

    def __init__(self, context: WorkerContext, claim: Claim, adapter: Adapter, ledger_call: LedgerCalls) -> None:
        self._context = context
        self._ledger = context.ledger
        self._claim = claim
        self._request: TurnRequest = claim.request
        self._adapter = adapter
        self._ledger_call = ledger_call
        self._new_id = str(uuid.uuid4())

    @property
    def previous(self) -> Attempt | None:
        """The last finished attempt."""
        ended = (attempt for attempt in reversed(self._claim.attempts) if attempt.ended_at is not None)
        return next(ended, None)

    async def home(self) -> str | None:
        """Return the host that the next attempt's session ties it to; None: any. Raises SessionNotFound."""
        previous = self.previous
        if previous is not None and await self._resumable(previous):
            return previous.host
        if self._request.session_id is None:
            return None
        return (await self._known(self._request.session_id)).host

    async def enter(self, host: str) -> Session:
        """Choose the next attempt's session on a host and lock it. Raises SessionNotFound, SessionInUse."""
        session = await self._choose()
        if not session.session_id:
            return session  # no other turn can use it until its agent has named it and the turn is settled
        entered = await self._ledger_call(
            self._ledger.sessions.lock,
            self._claim,
            session.session_id,
            agent=self._request.agent,
            host=host,
            workspace=self._request.workspace,
            now=self._context.clock(),
        )
        if isinstance(entered, InUse):
            raise errors.SessionInUse(f"turn {entered.turn_id} is running in session {session.session_id}")
        return session

    def command(self, request: TurnRequest, session: Session, host: TurnHost) -> Command:
        """Return the command for a session on a host, with the variables that the worker forwards.

        `request` is the turn's, in its workspace on that host.
        """
        knows_schemas = self._adapter.capabilities.structured_output
        request, previous = instructed(request, structured_output=knows_schemas), self.previous
        if previous is not None and session.resume and previous.session_id == session.session_id:
            request = request.model_copy(update={"prompt": _continuation(request.prompt, previous)})
        command = self._adapter.build(request, session)
        environ = self._context.environ
        credentials = self._adapter.credentials(environ) if host.forward_credentials else ()
        names = (*credentials, *host.forward_env, *command.forward_env)
        forwarded = {name: environ[name] for name in names if name in environ}
        traced = agent_environment(self._context.tracing, self._claim)
        return host.adapt(request.agent, replace(command, env={**forwarded, **command.env, **traced}))

    async def _choose(self) -> Session:
        previous = self.previous
        if previous is not None and previous.session_id and await self._resumable(previous):
            return Session(previous.session_id, resume=True)
        if self._request.session_id is None:
            return Session("" if self._adapter.capabilities.names_sessions else self._new_id, resume=False)
        return Session(self._request.session_id, resume=True)

    async def _known(self, session_id: str) -> SessionRow:
        """Return the session that the request names, if this turn can resume it. Raises SessionNotFound."""
        known = await self._ledger_call(self._ledger.sessions.find, session_id)
        if known is None:
            raise errors.SessionNotFound(f"there is no session {session_id}; it must come from an earlier turn")
        host = self._request.host or known.host
        if (known.agent, known.host, known.workspace) != (self._request.agent, host, self._request.workspace):
            raise errors.SessionNotFound(
                f"session {session_id} belongs to agent {known.agent} in workspace {known.workspace} "
                f"on host {known.host}; a session can be resumed only there"
            )
        return known

    async def _resumable(self, previous: Attempt) -> bool:
        """Return whether the turn continues in the session of an attempt, and so on its host."""
        if previous.outcome == errors.HostLost.kind and self._request.on_host_lost == "any_host":
            return False
        return await self._has_history(previous)

    async def _has_history(self, previous: Attempt) -> bool:
        """Return whether an attempt left a session worth resuming: the model answered during it or earlier."""
        if not previous.session_id:
            return False  # its agent named none
        if previous.outcome == errors.SessionNotFound.kind:
            return False
        request = self._request
        if request.brings_workspace:  # any path will do: only the session files matter
            request = request.working_in(previous.workspace or "/")
        if self._adapter.build(request, Session(previous.session_id, False)).session_files is None:
            return False
        if previous.resume:
            return True
        used = (await self._ledger_call(self._ledger.accounting.usage_of, self._claim.turn_id)).get(
            previous.attempt
        )
        return used is not None and used.tokens.total > 0


def _continuation(prompt: str, previous: Attempt) -> str:
    """Return the prompt for a resumed session: it has the history, but may have been cut off anywhere."""
    return (
        f"The last attempt at this task was interrupted ({previous.outcome}). "
        f"Check what is already done and continue from there. The task:\n\n{prompt}"
    )

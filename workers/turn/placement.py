"""Places a turn's next attempt: on a host that the request allows, with a free slot, in its session there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from adapters import errors
from adapters.contract import Session
from adapters.errors import TurnError
from ops.ledger import Attempt, Claim, OverBudget
from workers.agents.probe import AgentReport
from workers.context import WorkerContext
from workers.hosts.inventory import Hosts, TurnHost
from workers.ledger_calls import LedgerCalls
from workers.turn import budget_messages
from workers.turn.leases import AgentLease
from workers.turn.sessions import AttemptSession

# Faults of one host that another may not have. None of these started an agent.
_HOSTS_OWN = (
    errors.AgentNotFound,
    errors.AgentVersionUnsupported,  # if reported by the agent itself; otherwise detected before an attempt
    errors.HostAuthFailed,
    errors.HostKeyChanged,
    errors.InvalidWorkspace,
    errors.IsolationUnavailable,
    errors.SpoolUnwritable,
)
_HOSTS_OWN_KINDS = frozenset(error.kind for error in _HOSTS_OWN)


def another_may_run(hosts: Hosts, claim: Claim, attempt: Attempt, error: TurnError) -> bool:
    """Return whether `attempt` failed for want of something on its host and an untried host fits the turn."""
    if not isinstance(error, _HOSTS_OWN) or attempt.resume:
        return False
    try:
        candidates = hosts.candidates(claim.request)
    except errors.InvalidRequest:
        return False  # begun by a worker with another configuration
    return not {host.name for host in candidates} <= _refusing(claim.attempts) | {attempt.host}


def _refusing(attempts: Iterable[Attempt]) -> frozenset[str]:
    """Return the hosts of attempts that failed for want of something there."""
    return frozenset(attempt.host for attempt in attempts if attempt.outcome in _HOSTS_OWN_KINDS)


class Placement:
    """Placement of one claimed turn."""

    def __init__(
        self, context: WorkerContext, claim: Claim, sessions: AttemptSession, ledger_call: LedgerCalls
    ) -> None:
        self._context = context
        self._claim = claim
        self._sessions = sessions
        self._ledger_call = ledger_call

    async def begin(self) -> Attempt:
        """Take a slot and record the attempt.

        Raise HostBusy if every eligible host is full, AgentVersionUnsupported if none has an accepted version of
        the agent, BudgetExceeded if a budget for the turn's labels does not allow it, or another TurnError.
        """
        home = await self._sessions.home()
        candidates = self._context.hosts.candidates(self._claim.request)
        if home is not None:
            candidates = tuple(host for host in candidates if host.name == home)
            if not candidates:
                raise errors.SessionNotFound(
                    f"its session is on host {home}, which the request does not allow or this worker does not have"
                )
        refused = _refusing(self._claim.attempts)
        candidates = tuple(host for host in candidates if host.name not in refused) or candidates
        refusals: dict[str, str] = {}  # by host
        for host in await self._with_room(candidates):
            seen = await self._seen(host)
            if seen is not None and seen.refusal is not None:
                refusals[host.name] = seen.refusal
                continue
            session = await self._sessions.enter(host.name)
            begun = await self._begin(host, session, seen.health.version if seen is not None else None)
            if isinstance(begun, Attempt):
                return begun
            if isinstance(begun, OverBudget):
                self._context.metrics.budget_denied(begun.budget.key)
                raise budget_messages.exceeded(begun)
        raise self._none_left([host.name for host in candidates if host.name not in refusals], refusals)

    def _none_left(self, able: Sequence[str], refusals: Mapping[str, str]) -> TurnError:
        """Return why no host took the turn: those `able` to run it are full."""
        if not able:
            agent = self._claim.request.agent
            reasons = "; ".join(f"agent {agent} on {host}: {refusal}" for host, refusal in refusals.items())
            return errors.AgentVersionUnsupported(reasons)
        only = able[0] if len(able) == 1 else None
        return errors.HostBusy(f"all slots are taken on {', '.join(able)}", only=only, others_free=bool(refusals))

    async def _seen(self, host: TurnHost) -> AgentReport | None:
        """Return the report on the agent there; None: there is none."""
        context, name = self._context, self._claim.request.agent
        adapter = context.registry.get(name)
        if adapter.capabilities.versions is None:
            return None
        seen = await context.health.at_start(host, adapter, context.look)
        if seen is not None and seen.health.version is not None:
            context.metrics.agent_seen(name, host.name, seen.health.version)
        return seen

    async def _begin(self, host: TurnHost, session: Session, agent_version: str | None) -> object:
        number = self._claim.last.attempt + 1 if self._claim.last else 1
        hold = AgentLease.by(self._context.settings.agent)
        return await self._ledger_call(
            self._context.ledger.queue.begin_attempt,
            self._claim,
            host=host.name,
            spool_id=f"{self._claim.turn_id}.{number}",
            session_id=session.session_id or None,
            resume=session.resume,
            now=self._context.clock(),
            slots=host.slots,
            lease_s=hold.lease_s,
            stop_grace_s=hold.stop_grace_s,
            agent_version=agent_version,
        )

    async def _with_room(self, candidates: tuple[TurnHost, ...]) -> list[TurnHost]:
        """Return hosts that seem to have a free slot: those that lack nothing first, then the least loaded."""
        if len(candidates) == 1 and candidates[0].slots is None:
            return list(candidates)
        taken = await self._ledger_call(self._context.ledger.hosts.open_attempts)
        workspace = self._claim.request.directory

        def load(host: TurnHost) -> tuple[bool, bool, bool, float, int]:
            count = taken.get(host.name, 0)
            lacks = self._context.health.lacks(host.name, self._claim.request.agent)
            lacking = (lacks, not host.admits(workspace), host.host.rest_s > 0)
            return *lacking, count / host.slots if host.slots else 0.0, count

        free = (host for host in candidates if host.slots is None or taken.get(host.name, 0) < host.slots)
        return sorted(free, key=load)

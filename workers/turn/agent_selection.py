"""Chooses the agent of a request that leaves it open, from the agents available to this worker."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from adapters import errors
from adapters.contract import Adapter
from adapters.routing import Candidate, Choice, choose
from ops.ledger import Claim
from workers.agents.probe import AgentReport
from workers.context import WorkerContext
from workers.events.model import AgentChosen, to_wire
from workers.ledger_calls import LedgerCalls

log = structlog.get_logger(__name__)


class AgentSelection:
    """Selection among the agents on this worker's hosts."""

    def __init__(self, context: WorkerContext, ledger_call: LedgerCalls) -> None:
        self._context = context
        self._ledger_call = ledger_call

    async def chosen(self, claim: Claim) -> Claim:
        """Choose an agent, record it in the ledger, and return the new claim. Raise TurnError if there is none."""
        request, context = claim.request, self._context
        adapters, hosts = self._preferred(), context.hosts.candidates(request)
        if request.session_id is not None:
            session = await self._ledger_call(context.ledger.sessions.find, request.session_id)
            if session is None:
                raise errors.SessionNotFound(f"there is no session {request.session_id}")
            adapters = [context.registry.get(session.agent)]
            hosts = tuple(host for host in hosts if host.name == session.host) or hosts
        reports = await context.health.of(hosts, adapters, context.look)
        choice = choose([_candidate(report) for report in reports], request)
        if not isinstance(choice, Choice):
            raise choice
        log.info("agent chosen", agent=choice.agent, reason=choice.reason)
        return await self._noted(claim, AgentChosen(choice.agent, choice.reason))

    async def _noted(self, claim: Claim, event: AgentChosen) -> Claim:
        context, now = self._context, self._context.clock()
        seq = await self._ledger_call(context.ledger.events.last_seq, claim.turn_id) + 1
        line = to_wire(event, seq, now)
        routed = await self._ledger_call(context.ledger.queue.route, claim, event.agent, seq, line)
        context.event_writer.publish(claim.turn_id, seq, [event], now)
        return routed

    def _preferred(self) -> Sequence[Adapter]:
        """Return the adapters, the default agent first, the others by name."""
        default = self._context.settings.agent.kind
        return sorted(self._context.registry, key=lambda adapter: (adapter.name != default, adapter.name))


def _candidate(report: AgentReport) -> Candidate:
    return Candidate(
        report.agent,
        report.host,
        report.capabilities,
        billing=report.billing[0] if report.billing else None,
        problem=None if report.usable else report.problem or "not usable",
        refused=report.verdict.refused,
        reached=report.reached,
    )

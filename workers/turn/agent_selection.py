"""Finds the agent of a request that leaves it open: looks at what there is here, and has it chosen among."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from adapters import errors
from adapters.contract import Adapter
from adapters.routing import Candidate, Choice, choose
from ops.ledger import Claim
from workers.agents.probe import AgentReport
from workers.context import Equipment
from workers.events.model import AgentChosen, to_wire
from workers.ledger_calls import Patience

log = structlog.get_logger(__name__)


class Routes:
    """From this worker, to its hosts and agents."""

    def __init__(self, equipment: Equipment, patiently: Patience) -> None:
        self._equipment = equipment
        self._patiently = patiently

    async def chosen(self, claim: Claim) -> Claim:
        """The claim with an agent, which the ledger has, too. Raises TurnError if none can run it."""
        request, equipment = claim.request, self._equipment
        adapters, hosts = self._preferred(), equipment.hosts.candidates(request)
        if request.session_id is not None:
            session = await self._patiently(equipment.ledger.sessions.find, request.session_id)
            if session is None:
                raise errors.SessionNotFound(f"session {request.session_id} is not known")
            adapters = [equipment.registry.get(session.agent)]
            hosts = tuple(host for host in hosts if host.name == session.host) or hosts
        reports = await equipment.health.of(hosts, adapters, equipment.look)
        choice = choose([_candidate(report) for report in reports], request)
        if not isinstance(choice, Choice):
            raise choice
        log.info("an agent is chosen", agent=choice.agent, reason=choice.reason)
        return await self._noted(claim, AgentChosen(choice.agent, choice.reason))

    async def _noted(self, claim: Claim, event: AgentChosen) -> Claim:
        equipment, now = self._equipment, self._equipment.clock()
        seq = await self._patiently(equipment.ledger.events.last_seq, claim.turn_id) + 1
        line = to_wire(event, seq, now)
        routed = await self._patiently(equipment.ledger.queue.route, claim, event.agent, seq, line)
        equipment.pump.publish(claim.turn_id, seq, [event], now)
        return routed

    def _preferred(self) -> Sequence[Adapter]:
        """The default agent first, then by name."""
        default = self._equipment.settings.agent.kind
        return sorted(self._equipment.registry, key=lambda adapter: (adapter.name != default, adapter.name))


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

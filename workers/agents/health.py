"""A worker's reports on agents on its hosts: probed on first use, and cached for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from adapters.contract import Adapter
from adapters.versions import NO_VERDICT
from workers.agents.probe import AgentReport
from workers.hosts.inventory import TurnHost

_HEALTHY_S = 300.0  # how long a report is valid
_REFRESH_S = 240.0  # age at which a new probe starts, so that turns need not wait for one
_UNHEALTHY_S = 30.0  # shorter, as a refused version may be replaced at any time
_PATIENCE_S = 5.0  # how long a starting turn waits for a probe

Look = Callable[[TurnHost, Adapter], Awaitable[AgentReport]]


class AgentHealth:
    """Cache of agent reports, for use on one loop. Callers that ask during a probe share its report."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._reports: dict[tuple[str, str], tuple[float, AgentReport]] = {}
        self._told: dict[tuple[str, str], tuple[float, AgentReport]] = {}  # from hosts that answered
        self._looking: dict[tuple[str, str], asyncio.Future[AgentReport]] = {}

    async def of(self, hosts: Iterable[TurnHost], adapters: Iterable[Adapter], look: Look) -> list[AgentReport]:
        """Return a report per agent and host, agent by agent. `look` must neither raise nor take long."""
        places = list(hosts)
        asked = (self._one(host, adapter, look) for adapter in adapters for host in places)
        return list(await asyncio.gather(*asked))

    def lacks(self, host: str, agent: str) -> bool:
        """Return whether a cached report says that an agent cannot be used on a host."""
        known = self._known(host, agent)
        return known is not None and known.reached and not known.usable

    async def at_start(self, host: TurnHost, adapter: Adapter, look: Look) -> AgentReport | None:
        """Return the host's latest report on an agent about to be started there; None: there is none yet.

        Turns share a probe every few minutes, and rarely wait for it: only if there is no report, or it is too old
        or was a refusal; and not for long, so an unreachable host delays no turn. Then the latest report counts,
        whatever its age, except for a version that may have been replaced since.
        """
        key = host.name, adapter.name
        if self._known(*key) is None:
            await asyncio.wait({self._look(host, adapter, look)}, timeout=_PATIENCE_S)
        elif self._age_s(*key) >= _REFRESH_S:
            self._look(host, adapter, look)
        at, told = self._told.get(key, (0.0, None))
        if told is None or told.verdict.refused or self._monotonic() - at < _HEALTHY_S:
            return told
        return replace(told, health=replace(told.health, version=None), verdict=NO_VERDICT)

    async def _one(self, host: TurnHost, adapter: Adapter, look: Look) -> AgentReport:
        known = self._known(host.name, adapter.name)
        if known is not None:
            return known
        # A caller that is cancelled must not cancel the probe for others.
        return await asyncio.shield(self._look(host, adapter, look))

    def _look(self, host: TurnHost, adapter: Adapter, look: Look) -> asyncio.Future[AgentReport]:
        key = host.name, adapter.name
        looking = self._looking.get(key)
        if looking is None:
            looking = self._looking[key] = asyncio.ensure_future(self._noted(host, adapter, look))
            looking.add_done_callback(lambda _: self._looking.pop(key, None))
        return looking

    async def _noted(self, host: TurnHost, adapter: Adapter, look: Look) -> AgentReport:
        report = await look(host, adapter)
        key, noted = (host.name, adapter.name), (self._monotonic(), report)
        self._reports[key] = noted
        if report.reached:
            self._told[key] = noted
        return report

    def _known(self, host: str, agent: str) -> AgentReport | None:
        _, report = self._reports.get((host, agent), (0.0, None))
        if report is None:
            return None
        kept_s = _HEALTHY_S if report.usable else _UNHEALTHY_S
        return report if self._age_s(host, agent) < kept_s else None

    def _age_s(self, host: str, agent: str) -> float:
        return self._monotonic() - self._reports[host, agent][0]

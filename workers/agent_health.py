"""What a worker knows of its agents on its hosts: looked up when it is first asked for, and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from adapters.contract import Adapter
from workers.agent_check import AgentReport
from workers.hosts import TurnHost

_HEALTHY_S = 300.0  # a report is believed for so long
_UNHEALTHY_S = 30.0

Look = Callable[[TurnHost, Adapter], Awaitable[AgentReport]]


class AgentHealth:
    """To be used on one loop. Whoever asks while a look is under way gets what that one finds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._reports: dict[tuple[str, str], tuple[float, AgentReport]] = {}
        self._looking: dict[tuple[str, str], asyncio.Future[AgentReport]] = {}

    async def of(self, hosts: Iterable[TurnHost], adapters: Iterable[Adapter], look: Look) -> list[AgentReport]:
        """The reports of each agent on each host, agent by agent. `look` neither raises nor takes long."""
        places = list(hosts)
        asked = (self._one(host, adapter, look) for adapter in adapters for host in places)
        return list(await asyncio.gather(*asked))

    def lacks(self, host: str, agent: str) -> bool:
        """Whether it is known that an agent cannot be used on a host; nothing is looked up for that."""
        known = self._known(host, agent)
        return known is not None and known.reached and not known.health.healthy

    async def _one(self, host: TurnHost, adapter: Adapter, look: Look) -> AgentReport:
        key = host.name, adapter.name
        if (known := self._known(*key)) is not None:
            return known
        looking = self._looking.get(key)
        if looking is None:
            looking = self._looking[key] = asyncio.ensure_future(look(host, adapter))
            looking.add_done_callback(lambda _: self._looking.pop(key, None))
        report = await asyncio.shield(looking)  # one who leaves does not end it for the others
        self._reports[key] = self._monotonic(), report
        return report

    def _known(self, host: str, agent: str) -> AgentReport | None:
        at, report = self._reports.get((host, agent), (0.0, None))
        if report is None:
            return None
        kept_s = _HEALTHY_S if report.health.healthy else _UNHEALTHY_S
        return report if self._monotonic() - at < kept_s else None

"""What a worker knows of its agents on its hosts: looked up when it is first asked for, and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from adapters.contract import Adapter
from adapters.versions import NO_VERDICT
from workers.agents.probe import AgentReport
from workers.hosts.inventory import TurnHost

_HEALTHY_S = 300.0  # a report is believed for so long
_REFRESH_S = 240.0  # and another look is taken from then on, so that turns need not wait for one
_UNHEALTHY_S = 30.0  # a version that is refused may be replaced at any time
_PATIENCE_S = 5.0  # of a turn that is about to start

Look = Callable[[TurnHost, Adapter], Awaitable[AgentReport]]


class AgentHealth:
    """To be used on one loop. Whoever asks while a look is under way gets what that one finds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._reports: dict[tuple[str, str], tuple[float, AgentReport]] = {}
        self._told: dict[tuple[str, str], tuple[float, AgentReport]] = {}  # by hosts that answered
        self._looking: dict[tuple[str, str], asyncio.Future[AgentReport]] = {}

    async def of(self, hosts: Iterable[TurnHost], adapters: Iterable[Adapter], look: Look) -> list[AgentReport]:
        """The reports of each agent on each host, agent by agent. `look` neither raises nor takes long."""
        places = list(hosts)
        asked = (self._one(host, adapter, look) for adapter in adapters for host in places)
        return list(await asyncio.gather(*asked))

    def lacks(self, host: str, agent: str) -> bool:
        """Whether it is known that an agent cannot be used on a host; nothing is looked up for that."""
        known = self._known(host, agent)
        return known is not None and known.reached and not known.usable

    async def at_start(self, host: TurnHost, adapter: Adapter, look: Look) -> AgentReport | None:
        """What a host has told of an agent that is about to be started there; None: nothing yet.

        Turns share a look every few minutes, and mostly need not wait for it. They do where nothing is known, or
        what is known is too old, or was a refusal; but not for long, so a host that is away delays no turn. Then
        what it told last holds, whenever that was, but for a version that may have been replaced since.
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
        # One who leaves does not end it for the others.
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

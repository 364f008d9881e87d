"""Words that may become the values of labels. Users and models invent others: those are all one."""

from __future__ import annotations

from collections.abc import Iterable

from adapters.contract import Adapter
from adapters.usage import NO_TOKENS
from adapters.versions import Standing, is_version, verdict_on

OTHER = "other"
_STATUSES = frozenset({400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529})


class Vocabulary:
    """What these agents have names for."""

    def __init__(self, adapters: Iterable[Adapter] = (), queue: str = "runturn") -> None:
        """`queue` is what the ledger's one queue is called."""
        self.queue = queue
        self._adapters = {adapter.name: adapter for adapter in adapters}

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents."""
        return tuple(self._adapters)

    def agent(self, name: str) -> str:
        """An agent that is known here."""
        return name if name in self._adapters else OTHER

    def model(self, agent: str, name: str) -> str:
        """A model that the agent has a price for."""
        adapter = self._adapters.get(agent)
        return name if adapter is not None and adapter.price(name, NO_TOKENS) is not None else OTHER

    def tool(self, agent: str, name: str) -> str:
        """A tool that comes with the agent."""
        adapter = self._adapters.get(agent)
        return name if adapter is not None and name in adapter.tools else OTHER

    def version(self, text: str) -> str:
        """A version of an agent."""
        return text if is_version(text) else OTHER

    def standing(self, agent: str, version: str) -> str:
        """What is known of a version: proved, unproved, unsupported; unknown where no adapter tells of any."""
        adapter = self._adapters.get(agent)
        known = adapter.capabilities.versions if adapter is not None else None
        return str(Standing.UNKNOWN if known is None else verdict_on(version, known).standing)

    def status(self, code: int | None) -> str:
        """An HTTP status; `none` where there was no answer."""
        if code is None:
            return "none"
        return str(code) if code in _STATUSES else OTHER

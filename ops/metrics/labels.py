"""Allowed label values. Names that users and models invent become `other`."""

from __future__ import annotations

from collections.abc import Iterable

from adapters.contract import Adapter
from adapters.usage import NO_TOKENS
from adapters.versions import Standing, is_version, verdict_on

OTHER = "other"
_STATUSES = frozenset({400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529})


class Vocabulary:
    """Label values defined by these agents."""

    def __init__(self, adapters: Iterable[Adapter] = (), queue: str = "runturn") -> None:
        """Create the vocabulary. `queue` names the ledger's one queue."""
        self.queue = queue
        self._adapters = {adapter.name: adapter for adapter in adapters}

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of all agents."""
        return tuple(self._adapters)

    def agent(self, name: str) -> str:
        """Return the name of a registered agent, else `other`."""
        return name if name in self._adapters else OTHER

    def model(self, agent: str, name: str) -> str:
        """Return the name of a model that the agent has a price for, else `other`."""
        adapter = self._adapters.get(agent)
        return name if adapter is not None and adapter.price(name, NO_TOKENS) is not None else OTHER

    def tool(self, agent: str, name: str) -> str:
        """Return the name of a tool that comes with the agent, else `other`."""
        adapter = self._adapters.get(agent)
        return name if adapter is not None and name in adapter.tools else OTHER

    def version(self, text: str) -> str:
        """Return a valid version, else `other`."""
        return text if is_version(text) else OTHER

    def standing(self, agent: str, version: str) -> str:
        """Return the standing of a version: proved, unproved, unsupported; unknown if the adapter lists none."""
        adapter = self._adapters.get(agent)
        known = adapter.capabilities.versions if adapter is not None else None
        return str(Standing.UNKNOWN if known is None else verdict_on(version, known).standing)

    def status(self, code: int | None) -> str:
        """Return a listed HTTP status, else `other`; `none` if there was no answer."""
        if code is None:
            return "none"
        return str(code) if code in _STATUSES else OTHER

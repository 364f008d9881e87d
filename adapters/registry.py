"""Which agents there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from adapters.contract import Adapter
from adapters.errors import InvalidRequest


class Registry:
    """The agents that a worker can run, by name."""

    def __init__(self, adapters: Iterable[Adapter]) -> None:
        self._adapters: Mapping[str, Adapter] = {adapter.name: adapter for adapter in adapters}

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self._adapters.values())

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._adapters)

    def get(self, name: str) -> Adapter:
        """The agent of that name; raises InvalidRequest naming those that exist."""
        try:
            return self._adapters[name]
        except KeyError:
            known = ", ".join(self.names)
            raise InvalidRequest(f"there is no agent {name!r}; known: {known}", field="agent") from None

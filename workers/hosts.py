"""The hosts that turns can run on."""

from __future__ import annotations

from collections.abc import Iterator

from adapters.errors import InvalidRequest
from remote.host import Host


class Hosts:
    """All hosts by name."""

    def __init__(self, hosts: list[Host]) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._first = hosts[0].name

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def name_for(self, wanted: str | None) -> str:
        """The host a turn runs on. Raises InvalidRequest naming those that exist."""
        if wanted is None:
            return self._first
        if wanted not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            raise InvalidRequest(f"there is no host {wanted!r}; known: {known}", field="host")
        return wanted

    def get(self, name: str) -> Host:
        """A host by its name, which `name_for` has given."""
        return self._hosts[name]

"""Slots of a fleet's hosts, and the choice of the host with the fewest turns, in constant time."""

from __future__ import annotations


class Slots:
    """Slots of hosts, equally many on each; hosts are numbers from 0."""

    def __init__(self, hosts: int, slots: int) -> None:
        self.free = hosts * slots
        self._by_load = [list(range(hosts)), *([] for _ in range(slots))]  # hosts by how many turns they run
        self._load = [0] * hosts
        self._place = list(range(hosts))  # of a host in its list

    def take(self) -> int:
        """Take a slot of a least-loaded host and return the host; a slot must be free."""
        host = next(hosts[-1] for hosts in self._by_load if hosts)
        self._move(host, 1)
        return host

    def give(self, host: int) -> None:
        """Free a slot of that host."""
        self._move(host, -1)

    def _move(self, host: int, turns: int) -> None:
        here, place = self._by_load[self._load[host]], self._place[host]
        last = here.pop()
        if last != host:
            here[place], self._place[last] = last, place
        self._load[host] += turns
        there = self._by_load[self._load[host]]
        self._place[host] = len(there)
        there.append(host)
        self.free -= turns

"""Which turns that wait could go on here and now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from workers.hosts import Hosts, TurnHost, carries

Labels = Mapping[str, str]


class Vacancies:
    """The free slots of all hosts, as one look at the ledger has shown them; a turn that is admitted takes one."""

    def __init__(self, hosts: Hosts, taken: Mapping[str, int], fleet: Mapping[str, Iterable[Labels]]) -> None:
        """`taken` slots by host; `fleet` has the hosts that any worker knows, with their labels."""
        self._hosts = hosts
        self._taken = dict(taken)
        self._fleet = fleet

    def admit(self, place: str) -> bool:
        """Whether a turn that waits for this place (see `ops.ledger.places`) is for this worker, now."""
        kind, _, what = place.partition(":")
        match kind:
            case "at":
                return what in self._hosts or what not in self._fleet
            case "host":
                if what in self._hosts:
                    return self._slot_on([self._hosts.get(what)])
                return what not in self._fleet
            case "labels":
                labels = json.loads(what)
                here = self._hosts.carrying(labels)
                return self._slot_on(here) if here else not self._elsewhere(labels)
            case "any":
                return self._slot_on(self._hosts.default)
        return True  # nowhere: it needs no host

    def _elsewhere(self, labels: Labels) -> bool:
        return any(carries(given, labels) for versions in self._fleet.values() for given in versions)

    def _slot_on(self, candidates: Iterable[TurnHost]) -> bool:
        free = [host for host in candidates if host.slots is None or self._load(host) < host.slots]
        if not free:
            return False
        chosen = min(free, key=lambda host: (host.host.rest_s > 0, self._load(host) / (host.slots or 1)))
        self._taken[chosen.name] = self._load(chosen) + 1
        return True

    def _load(self, host: TurnHost) -> int:
        return self._taken.get(host.name, 0)

"""Which turns that wait could go on here and now."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from ops.ledger import Seen
from workers.hosts.inventory import Hosts, TurnHost, carries

_LIVE_S = 180.0  # since when a host was last seen, that some worker knows for certain

Fleet = Mapping[str, list[Seen]]


class Eligibility:
    """The free slots of all hosts, as one look at the ledger has shown them; a turn that is admitted takes one."""

    def __init__(self, hosts: Hosts, taken: Mapping[str, int], fleet: Callable[[], Fleet], now: float) -> None:
        """`taken` slots by host; `fleet` looks for the hosts that workers know, and is asked only if need be."""
        self._hosts = hosts
        self._taken = dict(taken)
        self._look = fleet
        self._now = now

    def admit(self, place: str) -> bool:
        """Whether a turn that waits for this place (see `ops.ledger.queue.requirements`) is for this worker, now.

        One for a host that only others know is left to them. One for a host that nobody knows is admitted, to be
        refused, or to be ended once nothing of it can be running any more.
        """
        kind, _, what = place.partition(":")
        match kind:
            case "at":
                return what in self._hosts or not self._live(what)
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

    @cached_property
    def _fleet(self) -> Fleet:
        return self._look()

    def _live(self, name: str) -> bool:
        return any(seen.at > self._now - _LIVE_S for seen in self._fleet.get(name, ()))

    def _elsewhere(self, labels: Mapping[str, str]) -> bool:
        return any(carries(seen.labels, labels) for said in self._fleet.values() for seen in said)

    def _slot_on(self, candidates: Iterable[TurnHost]) -> bool:
        free = [host for host in candidates if host.slots is None or self._load(host) < host.slots]
        if not free:
            return False
        chosen = min(free, key=lambda host: (host.host.rest_s > 0, self._load(host) / (host.slots or 1)))
        self._taken[chosen.name] = self._load(chosen) + 1
        return True

    def _load(self, host: TurnHost) -> int:
        return self._taken.get(host.name, 0)

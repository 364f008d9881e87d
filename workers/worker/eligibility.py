"""Waiting turns that could run here and now."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from ops.ledger import Seen
from workers.hosts.inventory import Hosts, TurnHost, carries

_LIVE_S = 180.0  # a host seen within this time certainly has a worker

Fleet = Mapping[str, list[Seen]]


class Eligibility:
    """The free slots of all hosts at one reading of the ledger; each admitted turn takes one."""

    def __init__(self, hosts: Hosts, taken: Mapping[str, int], fleet: Callable[[], Fleet], now: float) -> None:
        """`taken` counts slots by host; `fleet` returns the hosts of all workers and is called only if needed."""
        self._hosts = hosts
        self._taken = dict(taken)
        self._look = fleet
        self._now = now

    def admit(self, place: str) -> bool:
        """Return whether this worker may take a turn that waits for `place` (see `ops.ledger.queue.requirements`).

        Leave turns for hosts of other workers to those. Admit turns for hosts that no worker has: they are
        refused, or ended once nothing of them can still be running.
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

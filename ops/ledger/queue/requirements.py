"""The place a waiting turn needs: a text that workers compare with their hosts and the free slots there.

any            a slot on any host, for turns without requirements
labels:{…}     a slot on a host with these labels (a JSON object, its names sorted)
host:NAME      a slot on this host
at:NAME        no slot, but access to this host: an attempt is open there, and has its slot
nowhere        nothing: the turn was cancelled, and no attempt is open
"""

from __future__ import annotations

import json

from adapters.protocol.request import TurnRequest

ANY = "any"
NOWHERE = "nowhere"


def requested(request: TurnRequest) -> str:
    """Return the place a request needs for its next attempt."""
    if request.host is not None:
        return on(request.host)
    if request.host_labels:
        return f"labels:{json.dumps(request.host_labels, sort_keys=True, ensure_ascii=False)}"
    return ANY


def on(host: str) -> str:
    """Return the place of a slot on one host."""
    return f"host:{host}"


def at(host: str) -> str:
    """Return the place of an open attempt on a host."""
    return f"at:{host}"

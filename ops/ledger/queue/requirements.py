"""What a turn that waits needs: a text that workers compare with the hosts they know and the slots free there.

any            a slot on any host for turns without a wish
labels:{…}     a slot on a host that has these labels (a JSON object, its names sorted)
host:NAME      a slot on this host
at:NAME        no slot, but a way to this host: an attempt is open there, and holds its slot
nowhere        nothing: the turn was cancelled, and no attempt is open
"""

from __future__ import annotations

import json

from adapters.protocol.request import TurnRequest

ANY = "any"
NOWHERE = "nowhere"


def requested(request: TurnRequest) -> str:
    """Where a request wants its next attempt."""
    if request.host is not None:
        return on(request.host)
    if request.host_labels:
        return f"labels:{json.dumps(request.host_labels, sort_keys=True, ensure_ascii=False)}"
    return ANY


def on(host: str) -> str:
    """A slot on one host."""
    return f"host:{host}"


def at(host: str) -> str:
    """An open attempt on a host."""
    return f"at:{host}"

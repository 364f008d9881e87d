"""Blows against the hosts' sshds, and the links to them."""

from __future__ import annotations

import random

from tests.support.ssh.links import Link
from tests.support.ssh.sshd import Sshd
from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.form import Form

_SHORT_CUT_S = (1.0, 12.0)
_HOST_AWAY_S = (0.5, 4.0)
_BEYOND_LEASE_S = 15.0


def on_link(number: int, link: Link, form: Form, rng: random.Random) -> list[Blow]:
    """Return the blows against the link to a host."""
    cuts_s = [rng.uniform(*_SHORT_CUT_S) for _ in range(form.link_blows)]
    if form.long_cuts:
        cuts_s[0] = form.lease_s + _BEYOND_LEASE_S
    return [Blow(f"the link to h{number + 2} is cut", link.cut, cut_s, link.mend) for cut_s in cuts_s]


def on_host(name: str, sshd: Sshd, form: Form, rng: random.Random) -> list[Blow]:
    """Return the blows against a host's sshd."""
    kinds = [
        lambda: Blow(f"the sessions of {name}'s sshd are killed", sshd.kill_sessions),
        lambda: Blow(f"{name}'s sshd is stopped", sshd.stop, rng.uniform(*_HOST_AWAY_S), sshd.start),
    ]
    return [kinds[n % 2]() for n in range(form.host_blows)]

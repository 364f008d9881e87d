"""A host as its operator describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HOP = re.compile(
    r"""(ssh://)?
    ((?P<user>[^\s:]+)@)?
    (\[(?P<ipv6>[^\s\[\]]+)\] | (?P<name>[^\s:@/\[\]]+) | (?P<bare_ipv6>[\da-fA-F]*:[\da-fA-F]*:[^\s@/\[\]]*))
    (:(?P<port>\w+))?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a host is, and who we are there. What is left out comes from ssh_config, or is the default of ssh."""

    name: str  # what people call it
    address: str  # a name, an address, or an alias in ssh_config
    user: str | None = None
    port: int | None = None
    identity: Path | None = None  # the private key to log in with; only this one is offered then
    jump: str | None = None  # comma-separated, first hop first: names of targets, [user@]address[:port]; or "none"
    path: str = ""  # directories that go before the PATH of every shell there


def hops(jump: str) -> list[Target]:
    """The targets of a jump specification. Raises ValueError."""
    return [_hop(text.strip()) for text in jump.split(",")]


def _hop(text: str) -> Target:
    parts = _HOP.fullmatch(text)
    address = parts and (parts["ipv6"] or parts["name"] or parts["bare_ipv6"])
    if not parts or not address or address.startswith("-"):
        raise ValueError(f"a host to connect to is [user@]address[:port], not {text!r}")
    port = _port(parts["port"]) if parts["port"] else None
    return Target(name=text, address=address, user=parts["user"], port=port)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise ValueError(f"a port is a number from 1 to 65535, not {text!r}")
    return int(text)

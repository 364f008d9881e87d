"""A host as described by its operator."""

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
    """Address of a host, and our login there. Omitted fields come from ssh_config, or are ssh's defaults."""

    name: str  # the display name
    address: str  # a name, an address, or an alias in ssh_config
    user: str | None = None
    port: int | None = None
    identity: Path | None = None  # the private key to log in with; if set, only this one is offered
    jump: str | None = None  # comma-separated, first hop first: target names, [user@]address[:port]; or "none"
    path: str = ""  # directories to put before the PATH of every shell there


def hops(jump: str) -> list[Target]:
    """Return the targets of a jump specification. Raise ValueError if it is invalid."""
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

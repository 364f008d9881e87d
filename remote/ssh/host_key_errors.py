"""Messages for untrusted host keys: what the host offers, what is recorded, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

import asyncssh

from remote.ssh.known_hosts import Entry, Known, describe, line_for

_ASK = "Ask its administrator for the fingerprint. Only if it matches the offered one,"


def changed(name: str, key: asyncssh.SSHKey, known: Known) -> str:
    """Return the message for a host that has shown another key before."""
    paths = dict.fromkeys(entry.path for entry in known.keys)
    commands = " && ".join(f"ssh-keygen -R {quote(name)} -f {quote(str(path))}" for path in paths)
    return (
        f"its host key has changed. It offers {describe(key)}; recorded: {_listed(known.keys)}. "
        f"Either it was reinstalled, or another machine is impersonating it. "
        f"{_ASK} remove the recorded one: {commands}"
    )


def unknown(name: str, key: asyncssh.SSHKey, own: Path) -> str:
    """Return the message for a host without a known key, if the policy trusts no new one."""
    return f"its host key is unknown. It offers {describe(key)}. {_ASK} {_to_add(own, line_for(name, key))}"


def uncertified(name: str, key: asyncssh.SSHKey, known: Known, own: Path) -> str:
    """Return the message for a host that is known by its authority but has no certificate."""
    return (
        f"it has no host certificate, but should have one from {_listed(known.authorities)}. "
        f"It offers {describe(key)}. {_ASK} {_to_add(own, line_for(name, key))}"
    )


def signed_by_stranger(name: str, authority: asyncssh.SSHKey, known: Known, own: Path) -> str:
    """Return the message for a certificate signed by another authority."""
    line = f"@cert-authority {line_for(name, authority)}"
    trusted = _listed(known.authorities) or "none"
    return (
        f"its host certificate is signed by {describe(authority)}; trusted: {trusted}. "
        "Ask its administrator for the authority's fingerprint. Only if it matches the signer's, "
        f"{_to_add(own, line)}"
    )


def refused(reason: str, known: Known) -> str:
    """Return the message for an invalid certificate or a revoked key; `reason` says which."""
    revoked = f" (revoked: {_listed(known.revoked)})" if known.revoked else ""
    return (
        f"its host key is refused: {reason}{revoked}. Renew the host's certificate, or its key if that is revoked"
    )


def _to_add(own: Path, line: str) -> str:
    return f"add this line to {own}: {line}"


def _listed(entries: Iterable[Entry]) -> str:
    return ", ".join(map(str, entries))

"""Why a host key is not trusted, in words: what is offered, what is known, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

import asyncssh

from remote.ssh.known_hosts import Entry, Known, describe, line_for

_ASK = "Ask its administrator for the fingerprint. Only if that is the offered one,"


def changed(name: str, key: asyncssh.SSHKey, known: Known) -> str:
    """The host has shown another key before."""
    paths = dict.fromkeys(entry.path for entry in known.keys)
    commands = " && ".join(f"ssh-keygen -R {quote(name)} -f {quote(str(path))}" for path in paths)
    return (
        f"its host key has changed. It offers {describe(key)}; known is {_listed(known.keys)}. "
        f"Either it was set up anew, or somebody poses as it. {_ASK} remove the known one: {commands}"
    )


def unknown(name: str, key: asyncssh.SSHKey, own: Path) -> str:
    """No key of the host is known, and the policy is to trust no new one."""
    return f"its host key is not known. It offers {describe(key)}. {_ASK} {_to_add(own, line_for(name, key))}"


def uncertified(name: str, key: asyncssh.SSHKey, known: Known, own: Path) -> str:
    """The host is known by its authority, and has no certificate."""
    return (
        f"it has no host certificate, but should have one from {_listed(known.authorities)}. "
        f"It offers {describe(key)}. {_ASK} {_to_add(own, line_for(name, key))}"
    )


def signed_by_stranger(name: str, authority: asyncssh.SSHKey, known: Known, own: Path) -> str:
    """The host has a certificate from somebody else."""
    line = f"@cert-authority {line_for(name, authority)}"
    trusted = _listed(known.authorities) or "nobody"
    return (
        f"its host certificate is signed by {describe(authority)}; trusted is {trusted}. "
        "Ask its administrator for the authority's fingerprint. Only if that is the one that signed, "
        f"{_to_add(own, line)}"
    )


def refused(reason: str, known: Known) -> str:
    """A certificate does not hold, or the key is revoked; `reason` says which."""
    revoked = f" (revoked for it: {_listed(known.revoked)})" if known.revoked else ""
    return (
        f"its host key is refused: {reason}{revoked}. Renew the host's certificate, or its key if that is revoked"
    )


def _to_add(own: Path, line: str) -> str:
    return f"add this line to {own}: {line}"


def _listed(entries: Iterable[Entry]) -> str:
    return ", ".join(map(str, entries))

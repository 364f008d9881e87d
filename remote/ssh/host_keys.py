"""Trust in host keys: known ones, and new ones if the policy allows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypedDict

import asyncssh

from remote.errors import HostAuthFailed, HostKeyChanged
from remote.ssh import host_key_errors
from remote.ssh.known_hosts import Known, KnownHostsFile, hashed, known_name, line_for, look_up
from remote.ssh.known_hosts_writer import append, locked

logger = logging.getLogger(__name__)

# The defaults of OpenSSH's client, in its order, without hardware keys (ssh_config(5), HostKeyAlgorithms).
_PREFERRED = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


class HostKeyPolicy(StrEnum):
    """Policy for hosts that are not known yet (ssh_config(5), StrictHostKeyChecking)."""

    ACCEPT_NEW = "accept-new"  # trust its key, and record it
    STRICT = "strict"  # refuse it
    OFF = "off"  # trust every key, even a changed one of a known host


class HandshakeOptions(TypedDict, total=False):
    """Options for `asyncssh.connect`."""

    client_factory: Callable[[], asyncssh.SSHClient]
    known_hosts: tuple[Sequence[asyncssh.SSHKey], ...] | None
    server_host_key_algs: Sequence[str]
    host_key_alias: str


class HostKeys:
    """A worker's known host keys: from its own file, and from others, which it only reads."""

    def __init__(
        self, own: Path, others: Sequence[Path] = (), policy: HostKeyPolicy = HostKeyPolicy.ACCEPT_NEW
    ) -> None:
        self.own = own
        self.policy = policy
        self._paths = (own, *others)
        self._files = tuple(map(KnownHostsFile, self._paths))
        self._warned: set[str] = set()

    def handshake(self, name: str, host: str, port: int) -> HostKeyCheck:
        """Begin the check of one connection. Raise HostAuthFailed if a file cannot be read.

        `name` is the host's display name. Its keys are recorded under its address, `host`, and its `port`; or
        under its HostKeyAlias, and then `port` must be 22, whatever it is: to OpenSSH, an alias has no port.
        """
        if self.policy is HostKeyPolicy.OFF:
            self._warn(name)
            return HostKeyCheck(self, name, host, port, Known())
        try:
            known = look_up(self._files, known_name(host, port))
        except OSError as error:
            raise HostAuthFailed(
                name, f"its host key cannot be checked: {error}; make that file readable"
            ) from error
        return HostKeyCheck(self, name, host, port, known)

    def keep(self, name: str, key: asyncssh.SSHKey) -> str | None:
        """Record a new key, or return the objection if there is one by now. Block on files. Raise OSError."""
        with locked(self.own):
            known = look_up(map(KnownHostsFile, self._paths), name)
            objection = self.objection(name, key, known)
            if objection is None and not known.has(key):
                append(self.own, line_for(hashed(name), key))
        return objection

    def objection(self, name: str, key: asyncssh.SSHKey, known: Known) -> str | None:
        """Return the objection to a host's plain key; None if it is known, or may be trusted as a new one."""
        if known.revokes(key):
            return host_key_errors.refused("it is revoked", known)
        if known.has(key):
            return None
        if known.keys:
            return host_key_errors.changed(name, key, known)
        if known.authorities:
            return host_key_errors.uncertified(name, key, known, self.own)
        if self.policy is HostKeyPolicy.STRICT:
            return host_key_errors.unknown(name, key, self.own)
        return None

    def _warn(self, name: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logger.warning(
                "host %s: its host key is NOT CHECKED (policy %s); an impostor could read and change everything",
                name,
                self.policy,
            )


class HostKeyCheck:
    """Check of one connection's host key, against the keys known when it begins."""

    def __init__(self, host_keys: HostKeys, name: str, host: str, port: int, known: Known) -> None:
        self.refusal: HostKeyChanged | None = None  # raised instead of asyncssh.HostKeyNotVerifiable
        self._host_keys = host_keys
        self._name = name
        self._host = host
        self._known_name = known_name(host, port)
        self._known = known
        self._new: asyncssh.SSHKey | None = None

    def options(self) -> HandshakeOptions:
        """Return the options for `asyncssh.connect`."""
        if self._host_keys.policy is HostKeyPolicy.OFF:
            return {"known_hosts": None}
        authorities = [entry.key for entry in self._known.authorities]
        revoked = [entry.key for entry in self._known.revoked]
        return {
            "client_factory": lambda: _Client(self),
            "known_hosts": ([], authorities, revoked),  # so it asks us about every plain key except revoked ones
            "server_host_key_algs": _algorithms(self._known),
            "host_key_alias": self._host,  # the name that certificates must be for
        }

    async def verified(self, key: asyncssh.SSHKey | None) -> None:
        """Record the key if it is new: in the handshake, the host has proved that it owns it.

        Raise HostKeyChanged if another key was recorded first, HostAuthFailed if it cannot be recorded.
        """
        if key is None or key != self._new:
            return
        try:
            objection = await asyncio.to_thread(self._host_keys.keep, self._known_name, key)
        except OSError as error:
            own = self._host_keys.own
            raise HostAuthFailed(
                self._name,
                f"its host key cannot be recorded in {own}: {error}; let the worker's user write there",
            ) from error
        if objection:
            raise HostKeyChanged(self._name, objection)

    def trusts(self, key: asyncssh.SSHKey) -> bool:
        """Return True if nothing speaks against this key. The host has yet to prove that it owns it."""
        if self._new is not None:  # long connections renegotiate keys: it must still be the same host
            return key == self._new
        if objection := self._host_keys.objection(self._known_name, key, self._known):
            self._refuse(objection)
            return False
        if not self._known.has(key):
            self._new = key
        return True

    def trusts_authority(self, key: asyncssh.SSHKey) -> bool:
        """Refuse the certificate of an authority that is not among those of `options`."""
        self._refuse(host_key_errors.signed_by_stranger(self._known_name, key, self._known, self._host_keys.own))
        return False

    def failed(self, error: asyncssh.HostKeyNotVerifiable) -> None:
        """Record a refusal by asyncssh itself: an invalid certificate, a revoked key."""
        self._refuse(host_key_errors.refused(error.reason, self._known))

    def _refuse(self, reason: str) -> None:
        self.refusal = self.refusal or HostKeyChanged(self._name, reason)


class _Client(asyncssh.SSHClient):
    """Forwards asyncssh's callbacks to the check."""

    def __init__(self, check: HostKeyCheck) -> None:
        self._check = check

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._check.trusts(key)

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._check.trusts_authority(key)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, asyncssh.HostKeyNotVerifiable):
            self._check.failed(exc)


def _algorithms(known: Known) -> list[str]:
    """Return all algorithms, in order of preference: certificates that may be valid, known keys, then the rest."""
    kinds = {entry.key.get_algorithm() for entry in known.keys}
    plain = sorted(_PREFERRED, key=lambda algorithm: _kind(algorithm) not in kinds)
    certificates = [f"{algorithm}-cert-v01@openssh.com" for algorithm in _PREFERRED if known.authorities]
    return certificates + plain


def _kind(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-") else algorithm

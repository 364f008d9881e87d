"""Which host keys are trusted: those that are known, and new ones if the policy says so."""

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
from remote.ssh.algorithms import host_key_algorithms
from remote.ssh.known_hosts import Known, KnownHostsFile, hashed, known_name, line_for, look_up
from remote.ssh.known_hosts_writer import append, locked

logger = logging.getLogger(__name__)


class HostKeyPolicy(StrEnum):
    """What to do about a host that is not known yet (ssh_config(5), StrictHostKeyChecking)."""

    ACCEPT_NEW = "accept-new"  # trust its key, and keep it
    STRICT = "strict"  # refuse it
    OFF = "off"  # trust every key, even that of a known host that has changed


class HandshakeOptions(TypedDict, total=False):
    """What `asyncssh.connect` needs to know."""

    client_factory: Callable[[], asyncssh.SSHClient]
    known_hosts: tuple[Sequence[asyncssh.SSHKey], ...] | None
    server_host_key_algs: Sequence[str]
    host_key_alias: str


class HostKeys:
    """The host keys that a worker knows: from a file of its own, and from those of others, which it only reads."""

    def __init__(
        self, own: Path, others: Sequence[Path] = (), policy: HostKeyPolicy = HostKeyPolicy.ACCEPT_NEW
    ) -> None:
        self.own = own
        self.policy = policy
        self._paths = (own, *others)
        self._files = tuple(map(KnownHostsFile, self._paths))
        self._warned: set[str] = set()

    def handshake(self, name: str, host: str, port: int) -> HostKeyCheck:
        """Begin to check one connection. Raises HostAuthFailed when a file cannot be read.

        `name` is what people call the host. It is known by its address, `host`, and its `port`; or else by its
        HostKeyAlias, and then `port` has to be 22, whatever it is in truth: to OpenSSH, an alias has no port.
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
        """Add a new key, or return what speaks against it by now. Blocks. Raises OSError."""
        with locked(self.own):
            known = look_up(map(KnownHostsFile, self._paths), name)
            objection = self.objection(name, key, known)
            if objection is None and not known.has(key):
                append(self.own, line_for(hashed(name), key))
        return objection

    def objection(self, name: str, key: asyncssh.SSHKey, known: Known) -> str | None:
        """Return what speaks against a host's plain key; None when it is known, or may be trusted as a new one."""
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
                "host %s: its host key is NOT CHECKED (policy %s); whoever poses as it sees and changes all",
                name,
                self.policy,
            )


class HostKeyCheck:
    """The check of one connection's host key, by what is known as it begins."""

    def __init__(self, host_keys: HostKeys, name: str, host: str, port: int, known: Known) -> None:
        self.refusal: HostKeyChanged | None = None  # to be raised instead of asyncssh.HostKeyNotVerifiable
        self._host_keys = host_keys
        self._name = name
        self._host = host
        self._known_name = known_name(host, port)
        self._known = known
        self._new: asyncssh.SSHKey | None = None

    def options(self) -> HandshakeOptions:
        """Return what `asyncssh.connect` needs to know."""
        if self._host_keys.policy is HostKeyPolicy.OFF:
            return {"known_hosts": None}
        authorities = [entry.key for entry in self._known.authorities]
        revoked = [entry.key for entry in self._known.revoked]
        return {
            "client_factory": lambda: _Client(self),
            "known_hosts": ([], authorities, revoked),  # so that it asks us about every plain key but the revoked
            "server_host_key_algs": host_key_algorithms(self._known),
            "host_key_alias": self._host,  # which certificates have to be for
        }

    async def verified(self, key: asyncssh.SSHKey | None) -> None:
        """Keep the key, if it is new: in the handshake, the host has proved that it owns it.

        Raises HostKeyChanged when another key has become known meanwhile, HostAuthFailed when it cannot be kept.
        """
        if key is None or key != self._new:
            return
        try:
            objection = await asyncio.to_thread(self._host_keys.keep, self._known_name, key)
        except OSError as error:
            own = self._host_keys.own
            raise HostAuthFailed(
                self._name,
                f"its host key cannot be kept in {own}: {error}; let the worker's user write there",
            ) from error
        if objection:
            raise HostKeyChanged(self._name, objection)

    def trusts(self, key: asyncssh.SSHKey) -> bool:
        """Whether this may be the host's key, as far as is known. The host has yet to prove that it owns it."""
        if self._new is not None:  # long connections agree on keys anew: it has to be the same host then
            return key == self._new
        if objection := self._host_keys.objection(self._known_name, key, self._known):
            self._refuse(objection)
            return False
        if not self._known.has(key):
            self._new = key
        return True

    def trusts_authority(self, key: asyncssh.SSHKey) -> bool:
        """Refuse the certificate of an authority that asyncssh has not found among those of `options`."""
        self._refuse(host_key_errors.signed_by_stranger(self._known_name, key, self._known, self._host_keys.own))
        return False

    def failed(self, error: asyncssh.HostKeyNotVerifiable) -> None:
        """Note the refusal, be it asyncssh's own: a certificate that does not hold, a revoked key."""
        self._refuse(host_key_errors.refused(error.reason, self._known))

    def _refuse(self, reason: str) -> None:
        self.refusal = self.refusal or HostKeyChanged(self._name, reason)


class _Client(asyncssh.SSHClient):
    """What asyncssh asks and tells, passed on."""

    def __init__(self, check: HostKeyCheck) -> None:
        self._check = check

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._check.trusts(key)

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._check.trusts_authority(key)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, asyncssh.HostKeyNotVerifiable):
            self._check.failed(exc)

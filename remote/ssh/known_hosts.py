"""Known host keys in OpenSSH's format (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT")."""

from __future__ import annotations

import hmac
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import asyncssh

_HASHED = "|1|"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its place in a file."""

    path: Path
    line: int
    key: asyncssh.SSHKey

    def __str__(self) -> str:
        return f"{describe(self.key)} ({self.path} line {self.line})"


@dataclass(frozen=True, slots=True)
class Known:
    """Everything the files say about one host."""

    keys: tuple[Entry, ...] = ()
    authorities: tuple[Entry, ...] = ()  # whose host certificates are trusted
    revoked: tuple[Entry, ...] = ()  # keys and authorities that are no longer trusted

    def has(self, key: asyncssh.SSHKey) -> bool:
        """Return True if this is one of the host's known keys."""
        return any(entry.key == key for entry in self.keys)

    def revokes(self, key: asyncssh.SSHKey) -> bool:
        """Return True if this key is revoked."""
        return any(entry.key == key for entry in self.revoked)


class KnownHostsFile:
    """One file, reread when it changes. A missing file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._lines: list[_Line] = []

    def entries(self, name: str) -> Iterator[tuple[str, Entry]]:
        """Yield the entries for `name`, each with its marker. Raise OSError."""
        for line in self._read():
            if line.matches(name) and (key := line.key()):
                yield line.marker, Entry(self._path, line.number, key)

    def _read(self) -> list[_Line]:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                version = (status.st_mtime_ns, status.st_size, status.st_ino)
                if version != self._version:
                    self._lines = list(_parse(file.read().decode(errors="replace")))
                    self._version = version
        except FileNotFoundError:
            return []
        return self._lines


def look_up(files: Iterable[KnownHostsFile], name: str) -> Known:
    """Return what these files say about a host; `name` is its `known_name`. Raise OSError."""
    found = [entry for file in files for entry in file.entries(name)]

    def marked(marker: str) -> tuple[Entry, ...]:
        return tuple(entry for mark, entry in found if mark == marker)

    return Known(marked(""), marked("@cert-authority"), marked("@revoked"))


def known_name(host: str, port: int) -> str:
    """Return the name under which a host's keys are recorded."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def hashed(name: str) -> str:
    """Return a salted hash of a name: readers of the file learn of no other hosts (HashKnownHosts)."""
    salt = secrets.token_bytes(20)
    return f"{_HASHED}{b64encode(salt).decode()}|{b64encode(_hmac(salt, name)).decode()}"


def line_for(names: str, key: asyncssh.SSHKey) -> str:
    """Return the line that records `key`, without a newline."""
    kind, data, *_ = key.export_public_key().decode().split()
    return f"{names} {kind} {data}"


def describe(key: asyncssh.SSHKey) -> str:
    """Return the type and fingerprint of a key."""
    return f"{key.get_algorithm()} {key.get_fingerprint()}"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that looks like an entry. Its key is decoded on demand: a file may have thousands of lines."""

    number: int
    marker: str
    names: str
    kind: str
    data: str

    def matches(self, name: str) -> bool:
        if self.names.startswith("|"):
            return _matches_hash(self.names, name)
        patterns = self.names.lower().split(",")
        if any(_matches_pattern(pattern[1:], name) for pattern in patterns if pattern.startswith("!")):
            return False
        return any(_matches_pattern(pattern, name) for pattern in patterns)

    def key(self) -> asyncssh.SSHKey | None:
        """Return the key; None if it is malformed, or of a type that asyncssh does not support."""
        try:
            return asyncssh.import_public_key(f"{self.kind} {self.data}")
        except (ValueError, OverflowError):  # the latter for an RSA key with negative numbers
            return None


def _parse(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.split("\n"), 1):  # splitlines() counts lines differently from editors
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) >= 3 and not fields[0].startswith("#"):
            yield _Line(number, marker, *fields[:3])


def _matches_hash(hashed_name: str, name: str) -> bool:
    salt, _, digest = hashed_name.removeprefix(_HASHED).partition("|")
    try:
        return b64decode(digest) == _hmac(b64decode(salt), name)
    except ValueError:
        return False


def _matches_pattern(pattern: str, name: str) -> bool:
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(name, pattern.replace("[", "[[]"))  # brackets are literal here
    return pattern == name


def _hmac(salt: bytes, name: str) -> bytes:
    return hmac.digest(salt, name.encode(), "sha1")

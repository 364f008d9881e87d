"""Files of this machine that a turn brings: which ones, and whether it may."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from adapters.errors import InvalidRequest
from adapters.protocol.workspace import HostMount, matcher
from remote.tar_stream import Entry

_MOST = 1_000_000  # entries of one mount: links to directories that contain links multiply without end


def check_mounts(mounts: Sequence[HostMount], roots: Sequence[Path]) -> None:
    """Raise InvalidRequest, naming the field, unless every mount exists and is below one of the roots."""
    allowed = _Allowed.of(roots)
    for index, mount in enumerate(mounts):
        allowed.real(mount.host_path, f"mounts.{index}.host_path")


def chosen(mounts: Sequence[HostMount], roots: Sequence[Path]) -> list[Entry]:
    """Return everything to copy. Raise InvalidRequest, naming the field, if it is not allowed or too much."""
    allowed = _Allowed.of(roots)
    entries: list[Entry] = []
    for index, mount in enumerate(mounts):
        found = list(islice(_Walk(mount, allowed, f"mounts.{index}").entries(), _MOST + 1))
        if len(found) > _MOST:
            text = f"{mount.host_path} has more than {_MOST:,} files and directories to copy; leave some out"
            raise InvalidRequest(text, field=f"mounts.{index}.host_path")
        size = sum(entry.size for entry in found)
        if mount.max_bytes is not None and size > mount.max_bytes:
            text = f"{mount.host_path} has {size:,} bytes to copy, more than {mount.max_bytes:,}; leave some out"
            raise InvalidRequest(text, field=f"mounts.{index}.max_bytes")
        entries += found
    return entries


@dataclass(frozen=True, slots=True)
class _Allowed:
    """Directories that mounts may come from, as real paths."""

    roots: tuple[str, ...]

    @classmethod
    def of(cls, roots: Sequence[Path]) -> _Allowed:
        return cls(tuple(os.path.realpath(root) for root in roots))

    def real(self, path: str, field: str) -> str:
        """Return the real path. Raise InvalidRequest if it does not exist or is not allowed."""
        if not self.roots:
            text = "this worker allows no mounts: its operator must list allowed directories in mount_roots"
            raise InvalidRequest(text, field=field)
        real = os.path.realpath(path)
        if not any(os.path.commonpath([root, real]) == root for root in self.roots):
            leads = f"{path} resolves to {real}, which" if real != path else path
            text = f"{leads} is in none of the worker's mount_roots ({', '.join(self.roots)})"
            raise InvalidRequest(text, field=field)
        try:
            Path(real).stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidRequest(f"{path} does not exist on the worker's machine", field=field) from error
        except OSError as error:
            text = f"{path} is not accessible on the worker's machine: {error.strerror}"
            raise InvalidRequest(text, field=field) from error
        return real


class _Walk:
    """Walk over everything that one mount brings."""

    def __init__(self, mount: HostMount, allowed: _Allowed, field: str) -> None:
        self._mount = mount
        self._allowed = allowed
        self._field = field
        self._included = matcher(mount.include_glob)
        self._excluded = matcher(mount.exclude_glob)
        self._within: list[str] = []  # real directories on the current path

    def entries(self) -> Iterator[Entry]:
        """Yield entries in order of their names; omit anything that is neither a file nor a directory."""
        source = self._allowed.real(self._mount.host_path, f"{self._field}.host_path")
        try:
            yield from self._entries(source, "", Path(self._mount.host_path).name)
        except OSError as error:
            text = f"{error.filename} cannot be read: {error.strerror}"
            raise InvalidRequest(text, field=f"{self._field}.host_path") from error
        except RecursionError as error:
            text = f"{self._mount.host_path} is nested too deeply; leave some out"
            raise InvalidRequest(text, field=f"{self._field}.host_path") from error

    def _entries(self, source: str, below: str, name: str) -> Iterator[Entry]:
        """Yield entries of a real path; `below` is its path within the mount, `name` the name that globs match."""
        status = os.lstat(source)
        if stat.S_ISDIR(status.st_mode):
            yield from self._directory(source, below)
        elif stat.S_ISREG(status.st_mode) and self._wanted(below or name):
            executable = bool(status.st_mode & stat.S_IXUSR)
            yield Entry(self._target(below), source, status.st_size, executable)

    def _directory(self, source: str, below: str) -> Iterator[Entry]:
        if source in self._within:
            return  # a link to one of its parent directories
        if not below or self._wanted(below):
            yield Entry(self._target(below), None)
        self._within.append(source)
        with os.scandir(source) as found:
            children = sorted(found, key=lambda child: child.name)
        for child in children:
            path = f"{below}/{child.name}" if below else child.name
            if self._excluded(path):
                continue
            if not child.is_symlink():
                yield from self._entries(child.path, path, child.name)
            elif self._mount.follow_symlinks and Path(child.path).exists():
                real = self._allowed.real(child.path, f"{self._field}.follow_symlinks")
                yield from self._entries(real, path, child.name)
        self._within.pop()

    def _wanted(self, path: str) -> bool:
        return not self._excluded(path) and (not self._mount.include_glob or self._included(path))

    def _target(self, below: str) -> str:
        return f"{self._mount.place}/{below}" if below else self._mount.place

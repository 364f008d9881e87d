"""The archive: `DAY/HH/TURN.jsonl.gz`, by the day (UTC) on which the turn was settled.

HH is the first two hex digits of the turn id's SHA-256, which keeps directories small. Old days are removed whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import get_protocol

from ops.errors import ArchiveUnavailable, SettingsError

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LOGIN = re.compile(r"://[^/@]*@")


class Archive:
    """Archive of transcripts. Calls block as long as its file system does, and raise ArchiveUnavailable."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = _LOGIN.sub("://…@", url)  # for messages

    @classmethod
    def at(cls, url: str) -> Self:
        """Return the archive at a directory or URL, without accessing it. Raises SettingsError if unusable."""
        if "://" not in url:
            return cls(str(Path(url).expanduser().absolute()))
        for part in url.split("::"):
            protocol = get_protocol(part)
            try:
                fsspec.get_filesystem_class(protocol)
            except (ValueError, ImportError) as error:
                text = f"file system {protocol!r} is not available: {error}"
                raise SettingsError(text, field="transcripts_url", where="RUNTURN_TRANSCRIPTS_URL") from error
        return cls(url)

    def write(self, turn_id: str, settled_at: float, transcript: bytes) -> None:
        """Write a transcript atomically, replacing any existing one."""
        with self._mapped():
            fs, root = self._writable()
            path = f"{root}/{_day(settled_at)}/{_file(turn_id)}"
            directory, _, name = path.rpartition("/")
            fs.makedirs(directory, exist_ok=True)
            draft = f"{directory}/.{name}.{secrets.token_hex(4)}"
            try:
                with fs.open(draft, "wb") as file:
                    file.write(transcript)
                    if isinstance(fs, LocalFileSystem):
                        file.flush()
                        os.fsync(file.fileno())  # the ledger deletes what it considers archived
                fs.mv(draft, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    fs.rm(draft)
                raise

    def check(self) -> None:
        """Raise ArchiveUnavailable unless the archive is writable."""
        with self._mapped():
            fs, root = self._writable()
            probe = f"{root}/.check.{secrets.token_hex(4)}"
            fs.pipe_file(probe, b"written")
            fs.rm(probe)

    def read(self, turn_id: str, settled_at: float | None = None) -> bytes | None:
        """Return a turn's transcript, or None. Without `settled_at`, search all days, newest first."""
        with self._mapped():
            fs, root = self._place
            days = sorted(self._days(), reverse=True) if settled_at is None else [_day(settled_at)]
            for day in days:
                with contextlib.suppress(FileNotFoundError):
                    found: bytes = fs.cat_file(f"{root}/{day}/{_file(turn_id)}")
                    return found
        return None

    def remove_before(self, time: float) -> int:
        """Remove the days that ended by `time`. Return their number."""
        old = [day for day in self._days() if _end(day) <= time]
        with self._mapped():
            fs, root = self._place
            for day in old:
                with contextlib.suppress(FileNotFoundError):  # another worker was faster
                    fs.rm(f"{root}/{day}", recursive=True)
        return len(old)

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """The file system, and the root path in it; some file systems connect here."""
        fs, root = url_to_fs(self._url, skip_instance_cache=True)
        return fs, root.rstrip("/")

    def _writable(self) -> tuple[Any, str]:
        fs, root = self._place
        if isinstance(fs, LocalFileSystem) and not Path(root).is_dir():
            # Private. Its parent must exist: it may be a mount, and must not be created below a missing one.
            Path(root).mkdir(mode=0o700)
        return fs, root

    def _days(self) -> list[str]:
        with self._mapped():
            fs, root = self._place
            fs.invalidate_cache()
            try:
                names = [str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(root or "/", detail=False)]
            except FileNotFoundError:
                return []
        return [name for name in names if _DAY.fullmatch(name)]

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except ArchiveUnavailable:
            raise
        except Exception as error:  # file systems raise their client libraries' exceptions
            self.__dict__.pop("_place", None)  # its connection may be permanently broken
            text = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
            raise ArchiveUnavailable(f"transcripts at {self.name}: {' '.join(text.split())}") from error


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")


def _end(day: str) -> float:
    return (datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)).timestamp()


def _file(turn_id: str) -> str:
    """Return the path below the day. Quoted, so that any turn id is a single file name."""
    shelf = hashlib.sha256(turn_id.encode(errors="replace")).hexdigest()[:2]
    return f"{shelf}/{quote(turn_id, safe='', errors='replace')}.jsonl.gz"

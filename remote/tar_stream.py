"""Files as a tar archive: its size known before, its bytes in chunks, in bounded memory."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
_CHUNK = 2**20
# Without O_PATH, which Linux alone has, a directory has to be readable.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or directory of an archive."""

    path: str  # in the archive
    source: str | None  # of a file: its real path; None: a directory
    size: int = 0  # bytes
    executable: bool = False


class SourceChanged(Exception):
    """A file is not what it was when it was chosen."""


def archive_size(entries: Iterable[Entry]) -> int:
    """The bytes of the archive."""
    return sum(len(_header(entry)) + _padded(entry.size) for entry in entries) + len(_END)


def archive(entries: Sequence[Entry]) -> Iterator[bytes]:
    """The archive, in chunks of about a mebibyte. Blocks; raises OSError and SourceChanged."""
    gathered = bytearray()
    for piece in _pieces(entries):
        gathered += piece
        if len(gathered) >= _CHUNK:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _pieces(entries: Iterable[Entry]) -> Iterator[bytes]:
    for entry in entries:
        yield _header(entry)
        if entry.source is not None:
            yield from _content(entry.source, entry.size)
            yield bytes(_padded(entry.size) - entry.size)
    yield _END


def _content(source: str, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file. One that was exchanged for a link or a pipe meanwhile is not followed."""
    descriptor = _opened(source)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SourceChanged(source)
        while size:
            piece = file.read(min(size, _CHUNK))
            if not piece:
                raise SourceChanged(source)
            size -= len(piece)
            yield piece


def _opened(source: str) -> int:
    """A descriptor of a file, step by step: each of its directories may have been exchanged for a link, too."""
    *directories, name = Path(source).parts
    at = os.open(directories[0], _DIRECTORY)
    try:
        for directory in directories[1:]:
            above, at = at, os.open(directory, _DIRECTORY, dir_fd=at)
            os.close(above)
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)


def _header(entry: Entry) -> bytes:
    info = tarfile.TarInfo(entry.path)
    info.size = entry.size
    info.type = tarfile.DIRTYPE if entry.source is None else tarfile.REGTYPE
    info.mode = 0o755 if entry.executable or entry.source is None else 0o644
    # Every tar reads it, busybox's too, long names included.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK

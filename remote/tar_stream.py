"""Files as a tar archive: its size known in advance, its bytes in chunks, in bounded memory."""

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
# Without O_PATH, which only Linux has, a directory must be readable.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory of an archive."""

    path: str  # in the archive
    source: str | None  # real path of a file; None: a directory
    size: int = 0  # bytes
    executable: bool = False


class SourceChanged(Exception):
    """A file changed after it was chosen."""


def archive_size(entries: Iterable[Entry]) -> int:
    """Return the size of the archive in bytes."""
    return sum(len(_header(entry)) + _padded(entry.size) for entry in entries) + len(_END)


def archive(entries: Sequence[Entry]) -> Iterator[bytes]:
    """Yield the archive in chunks of about 1 MiB. Block while reading. Raise OSError or SourceChanged."""
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
    """Yield the first `size` bytes of a file. Do not follow one that was replaced by a link or a pipe."""
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
    """Open a file step by step: each of its directories may have been replaced by a link, too."""
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
    # Every tar reads this format and its long names, including busybox's.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK

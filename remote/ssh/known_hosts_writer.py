"""Writing the worker's own known-hosts file, which several processes share."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 30.0  # a writer needs milliseconds, or more on a slow disk behind many others


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file against other writers, threads or processes. Raise OSError, including TimeoutError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(lock, time.monotonic() + _PATIENCE_S)
        yield
    finally:
        os.close(lock)


def append(path: Path, line: str) -> None:
    """Append a line to a locked file, atomically for readers and crashes. Raise OSError."""
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        content += b"\n"
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _acquire(lock: int, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process has held its lock for {_PATIENCE_S:.0f} s") from None
            time.sleep(0.02)

"""The directory in which runturn keeps what must outlive a process."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ops.errors import SettingsError

_REMEDY = "set RUNTURN_STATE_DIR to a directory of your own"


@dataclass(frozen=True, slots=True)
class StateDir:
    """Its layout."""

    root: Path

    @property
    def spool(self) -> Path:
        """The spools of this machine's turns."""
        return self.root / "spool"

    @property
    def workspaces(self) -> Path:
        """The workspaces that turns on this machine bring."""
        return self.root / "workspaces"

    @property
    def broker(self) -> Path:
        """The embedded broker's files and its socket."""
        return self.root / "broker"

    @property
    def logs(self) -> Path:
        """What background processes print."""
        return self.root / "logs"

    @property
    def ledger_url(self) -> str:
        """The embedded ledger."""
        return f"sqlite:///{self.root / 'ledger.sqlite3'}"

    @classmethod
    def open(cls, root: Path) -> Self:
        """Create what is missing, readable to this user only; raises SettingsError saying what to do."""
        state_dir = cls(root)
        try:
            for directory in (root, state_dir.spool, state_dir.broker, state_dir.logs):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(root)
            # tried, not asked: permissions do not tell of a read-only or a full disk
            with tempfile.TemporaryFile(dir=root) as probe:
                probe.write(b"runturn")
        except OSError as error:
            raise _unusable(root, f"cannot be written ({error.strerror})") from None
        return state_dir


def _check_owner(root: Path) -> None:
    found = root.stat()
    if found.st_uid != os.geteuid():
        raise _unusable(root, f"belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unusable(root, f"can be written by other users (run: chmod 700 '{root}')")


def _unusable(root: Path, problem: str) -> SettingsError:
    return SettingsError(f"{root} {problem}; {_REMEDY}", field="state_dir", where="state directory")

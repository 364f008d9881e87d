"""Directory of the state that outlives a process."""

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
    """Layout of the state directory."""

    root: Path

    @property
    def spool(self) -> Path:
        """Spools of this machine's turns."""
        return self.root / "spool"

    @property
    def workspaces(self) -> Path:
        """Workspaces created for turns on this machine."""
        return self.root / "workspaces"

    @property
    def broker(self) -> Path:
        """Files and socket of the embedded broker."""
        return self.root / "broker"

    @property
    def logs(self) -> Path:
        """Output of background processes."""
        return self.root / "logs"

    @property
    def ledger_url(self) -> str:
        """URL of the embedded ledger."""
        return f"sqlite:///{self.root / 'ledger.sqlite3'}"

    @classmethod
    def open(cls, root: Path) -> Self:
        """Create what is missing, readable by this user only. Raise SettingsError with a remedy."""
        state_dir = cls(root)
        try:
            for directory in (root, state_dir.spool, state_dir.broker, state_dir.logs):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(root)
            # try it: permissions do not reveal a read-only or full disk
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
        raise _unusable(root, f"is writable by other users (run: chmod 700 '{root}')")


def _unusable(root: Path, problem: str) -> SettingsError:
    return SettingsError(f"{root} {problem}; {_REMEDY}", field="state_dir", where="state directory")

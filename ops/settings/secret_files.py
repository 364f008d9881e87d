"""Secrets by file: one directory, one secret a file, as Compose, Kubernetes and systemd hand them to a service.

`RUNTURN_SECRETS_DIR` names the directory. A file that is called like a setting (`runturn_broker_url`) is that
setting; one that is called like a variable, in capitals (`ANTHROPIC_API_KEY`), is that variable, for workers to
pass on. What the environment itself has goes before both, and an empty file is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ops.errors import SettingsError
from ops.redaction import looks_secret

DIRECTORY = "RUNTURN_SECRETS_DIR"

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def directory(environ: Mapping[str, str]) -> Path | None:
    """Where secrets are; None: nowhere. Raises SettingsError if that is no directory that can be read."""
    named = environ.get(DIRECTORY)
    if not named:
        return None
    path = Path(named)
    _names(path)
    return path


def settings_in(path: Path, prefix: str) -> list[str]:
    """The names of the files that are meant to be settings, as variables are called.

    Raises SettingsError if one cannot be read, before anybody else tries.
    """
    names = [name for name in _names(path) if name.lower().startswith(prefix.lower())]
    for name in names:
        _read(path / name)
    return [name.upper() for name in names]


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What the files add to an environment. Raises SettingsError."""
    path = directory(environ)
    if path is None:
        return {}
    names = [name for name in _names(path) if _VARIABLE.fullmatch(name) and not environ.get(name)]
    found = {name: _read(path / name) for name in names if not name.startswith("RUNTURN_")}
    for name, value in found.items():
        if value and not looks_secret(name, value):
            # Agents would get it unasked, and no log would be redacted of it.
            text = "its name does not say that it is a secret; let it end in _TOKEN, _KEY, _PASSWORD or _SECRET"
            raise SettingsError(text, field=name, where=str(path))
    return {name: value for name, value in found.items() if value}


def _names(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", field=DIRECTORY, where=str(path)) from None


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"cannot be read: {what}", field=file.name, where=str(file)) from None

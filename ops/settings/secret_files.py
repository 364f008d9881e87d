"""Secret files: a directory with one file per secret, as Compose, Kubernetes and systemd provide.

`RUNTURN_SECRETS_DIR` names the directory. A file named like a setting (`runturn_broker_url`) sets it; one named
like a variable, in capitals (`ANTHROPIC_API_KEY`), sets that variable, for workers to pass on. The environment
takes precedence over both. Empty files are ignored.
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
    """Return the directory of secrets, if there is one. Raise SettingsError if it cannot be read."""
    named = environ.get(DIRECTORY)
    if not named:
        return None
    path = Path(named)
    _names(path)
    return path


def settings_in(path: Path, prefix: str) -> list[str]:
    """Return the names of files meant as settings, spelled like variables.

    Raise SettingsError if one cannot be read, before pydantic tries.
    """
    names = [name for name in _names(path) if name.lower().startswith(prefix.lower())]
    for name in names:
        _read(path / name)
    return [name.upper() for name in names]


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the files add to an environment. Raise SettingsError for an unusable file."""
    path = directory(environ)
    if path is None:
        return {}
    names = [name for name in _names(path) if _VARIABLE.fullmatch(name) and not environ.get(name)]
    found = {name: _read(path / name) for name in names if not name.startswith("RUNTURN_")}
    for name, value in found.items():
        if value and not looks_secret(name, value):
            # Every agent would receive it, and logs would not redact it.
            text = "its name does not mark it as a secret; end it in _TOKEN, _KEY, _PASSWORD or _SECRET"
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
        what = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"cannot be read: {what}", field=file.name, where=str(file)) from None

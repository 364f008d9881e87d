"""Loading of settings: finding the file, refusing unknown names, explaining errors."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from platformdirs import user_config_path
from pydantic import ValidationError
from pydantic_settings import SettingsError as Unreadable

from adapters.protocol.validation_errors import UNKNOWN
from adapters.registry import BUILT_IN, GROUP
from adapters.suggestions import meant, meant_field
from ops.errors import SettingsError
from ops.settings import secret_files
from ops.settings.settings import PREFIX, Settings

FILE = "runturn.toml"
_OWN = Settings.model_fields.keys() - {"agents"}  # of the file; each other table is an agent's
# Not settings: file locations, and variables that hosts set for agents, which may call runturn themselves.
RESERVED = frozenset(
    {"RUNTURN_CONFIG", "RUNTURN_SPOOL", "RUNTURN_SCRIPT", "RUNTURN_ENVIRONMENT", secret_files.DIRECTORY}
)


def load_settings() -> Settings:
    """Read the environment and the file. Raise SettingsError naming the setting and its source."""
    path = _path()
    document = _read(path) if path is not None else {}
    secrets = secret_files.directory(os.environ)
    _refuse_unknown([*os.environ, *(secret_files.settings_in(secrets, PREFIX) if secrets else ())])
    try:
        settings = Settings(**document)
    except ValidationError as error:
        raise _explained(error, document, path) from None
    except Unreadable as error:  # only its text names the field, in quotes
        field = str(error).split('"')[1]
        text = "is not JSON; expected an object or a list"
        raise SettingsError(text, field=field, where=PREFIX + field.upper()) from None
    for name in sorted(settings.agents.keys() - {entry.name for entry in BUILT_IN}):
        _refuse_unless_installed(name, str(path) if name in document.get("agents", ()) else f"{PREFIX}AGENTS")
    return settings


def _refuse_unless_installed(agent: str, where: str) -> None:
    """Raise SettingsError if no package provides an agent of that name: its table may be a mistyped one."""
    agents = {entry.name for entry in (*BUILT_IN, *entry_points(group=GROUP))}
    if agent not in agents:
        near = meant(agent, [*agents, *_OWN]) or f"; agents: {', '.join(sorted(agents))}"
        raise SettingsError(f"there is no such agent or setting{near}", field=agent, where=where)


def _path() -> Path | None:
    named = os.environ.get("RUNTURN_CONFIG")
    if named:
        return Path(named)
    places = (Path(FILE), user_config_path("runturn") / FILE)
    return next((place for place in places if place.is_file()), None)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", field="RUNTURN_CONFIG", where=str(path)) from None
    except ValueError as error:  # not TOML, not UTF-8
        raise SettingsError(f"is not TOML: {error}", field="file", where=str(path)) from None
    agents = {key: table for key, table in document.items() if key not in _OWN and isinstance(table, dict)}
    return {key: value for key, value in document.items() if key not in agents} | {"agents": agents}


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        if name.startswith(PREFIX) and name not in RESERVED:
            field = name.removeprefix(PREFIX).lower().split("__")[0]
            if field not in Settings.model_fields:
                near = meant(field, Settings.model_fields, PREFIX) or f"; settings: {', '.join(_known())}"
                raise SettingsError(f"no such setting{near}", field=field, where=name)


def _known() -> Iterator[str]:
    for name in Settings.model_fields:
        yield PREFIX + name.upper() + ("__…" if name in ("agent", "ssh") else "")


def _explained(error: ValidationError, document: Mapping[str, Any], path: Path | None) -> SettingsError:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    # A default derived from other settings fails only because they do.
    fault, *others = (each for each in faults if each["type"] != "default_factory_not_called")
    field = _field(fault["loc"], document)
    variable = PREFIX + "__".join(str(part) for part in fault["loc"]).upper()
    named = {name.upper() for name in os.environ}
    where = variable if variable in named else str(path) if path is not None else "environment"
    text = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == UNKNOWN:
        near = meant_field(Settings, fault["loc"]) or "; remove it or correct its name"
        text = f"no such setting{near}"
    if others:
        text += f". Also wrong: {', '.join(dict.fromkeys(_field(other['loc'], document) for other in others))}"
    return SettingsError(text, field=field, where=where)


def _field(loc: tuple[int | str, ...], document: Mapping[str, Any]) -> str:
    """Return the dotted name of a setting, with a host by its name if it has one."""
    match loc:
        case ("ssh_hosts", int(index), *rest):
            with contextlib.suppress(LookupError, TypeError):
                return ".".join(map(str, ("ssh_hosts", document["ssh_hosts"][index]["name"], *rest)))
    return ".".join(map(str, loc))

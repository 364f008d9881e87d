"""Settings: the environment (`RUNTURN_*`) over secrets by file over one TOML file over the defaults.

The file is the one that `RUNTURN_CONFIG` names, else `runturn.toml` in the current directory, else
`runturn/runturn.toml` in the user's configuration directory. A setting in a table is named with two underscores
in the environment: `RUNTURN_AGENT__TURN_TIMEOUT_MS`. The file's other tables are the options of the agents of
these names; in the environment they are one JSON object, `RUNTURN_AGENTS`. Secrets by file: see `secret_files`.

To add a setting: add a field here, and a line to the table in the README.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from platformdirs import user_config_path, user_state_path
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as Unreadable,
)

from adapters.request import EnvName, Label, Name
from ops import secret_files
from ops.errors import SettingsError

PREFIX = "RUNTURN_"
FILE = "runturn.toml"
# Not settings: where the files are, and what hosts leave in the environment of agents, who may call runturn, too.
RESERVED = frozenset(
    {"RUNTURN_CONFIG", "RUNTURN_SPOOL", "RUNTURN_SCRIPT", "RUNTURN_ENVIRONMENT", secret_files.DIRECTORY}
)

Milliseconds = Annotated[int, Field(ge=1)]


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _printable(text: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError("holds a control character")
    return text


def _is_absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must be an absolute path on the host")
    return path


Directory = Annotated[Path, AfterValidator(_absolute)]
Printable = Annotated[str, Field(min_length=1), AfterValidator(_printable)]
AbsolutePath = Annotated[Printable, AfterValidator(_is_absolute)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lambda name: str(name).lower())]


class AgentSettings(BaseModel):
    """Table `agent`: what holds for every turn that does not say otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Name = "claude-code"  # the agent of requests that name none
    command: Annotated[str, Field(min_length=1)] = "claude"  # its program: a path, or a name in the host's PATH
    turn_timeout_ms: Milliseconds = 3_600_000  # one attempt
    read_timeout_ms: Milliseconds = 5_000  # until the first event
    stall_timeout_ms: int = 300_000  # between two events; 0 or negative: never
    max_concurrent_agents: Annotated[int, Field(ge=1)] = 10  # in one worker
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    retry_backoff_ms: Milliseconds = 1_000  # the first delay; it doubles from attempt to attempt
    max_retry_backoff_ms: Milliseconds = 300_000  # and ends here
    stop_grace_ms: Milliseconds = 5_000  # between two signals to an agent that has to end
    lease_ms: Annotated[int, Field(ge=1_000)] = 120_000  # an agent outlives its last worker by that, at most
    spool_retention_ms: Milliseconds = 604_800_000  # for spools of turns that this ledger cannot read


class SshHostSettings(BaseModel):
    """One of `ssh_hosts`: a machine that turns run on over SSH. What ssh_config says about it holds, too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name  # what requests call it
    address: Printable | None = None  # [user@]address[:port], or an alias of ssh_config; None: the name
    user: Printable | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    identity: Directory | None = None  # the private key to log in with
    jump: Printable | None = None  # the way there: names of ssh_hosts or [user@]address[:port], comma-separated
    max_concurrent_agents: Annotated[int, Field(ge=1)] | None = None  # on that host, of all workers together
    labels: dict[Name, Label] = {}  # for requests to choose by
    agents: dict[Name, Printable] = {}  # where the programs of agents are; others are looked for in the PATH
    path: tuple[AbsolutePath, ...] = ()  # directories before the host's PATH
    env: tuple[EnvName, ...] = ()  # the worker's variables that agents there see
    workspace_roots: tuple[AbsolutePath, ...] = ()  # workspaces lie in one of these; empty: anywhere
    spool_dir: str = Field(
        default="~/.local/state/runturn/spool", pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$"
    )


def _named(entry: object) -> object:
    """A host that is given as text: its name is its address."""
    if not isinstance(entry, str):
        return entry
    match = re.fullmatch(r"(?:[^@]+@)?([^@:]+)(?::\d+)?", entry)
    if match is None:
        raise ValueError(f"{entry!r} is not of the form [user@]address[:port]; give it a name and an address")
    return {"name": match[1], "address": entry}


def _distinct(hosts: tuple[SshHostSettings, ...]) -> tuple[SshHostSettings, ...]:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the name {name} is given twice; set different ones")
    return hosts


SshHosts = Annotated[tuple[Annotated[SshHostSettings, BeforeValidator(_named)], ...], AfterValidator(_distinct)]


class SshSettings(BaseModel):
    """Table `ssh`: what holds for all of `ssh_hosts`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host_keys: Literal["accept-new", "strict", "off"] = "accept-new"
    known_hosts: Directory | None = None  # where new host keys are kept; None: in the state directory
    config_file: Directory | None = None  # None: ~/.ssh/config
    connect_timeout_ms: Milliseconds = 30_000  # login included


def _own_name(given: dict[str, Any]) -> str:
    """What the worker's machine is called if nobody says: workers of several may share a ledger on PostgreSQL."""
    url = given.get("ledger_url")
    if url is None or url.get_secret_value().startswith("sqlite"):
        return "local"
    return re.sub(r"[^A-Za-z0-9._-]", "-", platform.node()).strip("-._")[:128] or "local"


class _SecretFiles(SecretsSettingsSource):
    """Empty files are none, as with variables."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str | None, str, bool]:
        value, key, is_complex = super().get_field_value(field, field_name)
        return value or None, key, is_complex


class Settings(BaseSettings):
    """Everything that an operator can set. Its repr shows no URL: they carry passwords."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True, extra="forbid", frozen=True
    )

    state_dir: Directory = Field(default_factory=lambda: user_state_path("runturn"))
    broker_url: SecretStr | None = None  # None: the embedded broker
    result_url: SecretStr | None = None  # None: follows from the broker
    ledger_url: SecretStr | None = None  # None: SQLite in the state directory
    events_retention_ms: Milliseconds = 2_592_000_000  # of settled turns: 30 days; their requests go with them
    turns_retention_ms: Milliseconds = 34_560_000_000  # then the turns themselves: 400 days
    log_level: LogLevel = "info"
    log_format: Literal["auto", "json", "console"] = "auto"  # auto: console on a terminal, JSON anywhere else
    transcripts_url: SecretStr | None = None  # a directory or a URL of fsspec; None: no transcripts are kept
    transcripts_retention_ms: Milliseconds = 34_560_000_000
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9477  # 0: any free one
    host_name: Name = Field(default_factory=_own_name)  # what requests call the machine that the worker runs on
    agent: AgentSettings = AgentSettings()
    ssh: SshSettings = SshSettings()
    ssh_hosts: SshHosts = ()  # with any, turns run there and not on the worker's own machine
    agents: dict[str, dict[str, JsonValue]] = {}  # options by agent; whoever runs the agent validates them

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment beats secrets by file, and they beat what `load_settings` read from the TOML file."""
        secrets = secret_files.directory(os.environ)
        if secrets is None:
            return env_settings, init_settings
        return env_settings, _SecretFiles(settings_cls, secrets), init_settings

    @property
    def secrets(self) -> dict[str, str]:
        """What logs must not show, by the names that the environment has for it."""
        urls = {
            "BROKER_URL": self.broker_url,
            "RESULT_URL": self.result_url,
            "LEDGER_URL": self.ledger_url,
            "TRANSCRIPTS_URL": self.transcripts_url,
        }
        return {PREFIX + name: url.get_secret_value() for name, url in urls.items() if url is not None}


def load_settings() -> Settings:
    """Read the environment and the file; raises SettingsError with the setting and its place named."""
    path = _path()
    document = _read(path) if path is not None else {}
    secrets = secret_files.directory(os.environ)
    _refuse_unknown([*os.environ, *(secret_files.settings_in(secrets, PREFIX) if secrets else ())])
    try:
        return Settings(**document)
    except ValidationError as error:
        raise _explained(error, document, path) from None
    except Unreadable as error:  # its text quotes the field, and there is nothing else to learn it from
        field = str(error).split('"')[1]
        raise SettingsError("is not a JSON object", field=field, where=PREFIX + field.upper()) from None


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
    own = Settings.model_fields.keys() - {"agents"}
    agents = {key: table for key, table in document.items() if key not in own and isinstance(table, dict)}
    return {key: value for key, value in document.items() if key not in agents} | {"agents": agents}


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        if name.startswith(PREFIX) and name not in RESERVED:
            field = name.removeprefix(PREFIX).lower().split("__")[0]
            if field not in Settings.model_fields:
                raise SettingsError(
                    f"there is no such setting; there are: {', '.join(_known())}", field=field, where=name
                )


def _known() -> Iterator[str]:
    for name in Settings.model_fields:
        yield PREFIX + name.upper() + ("__…" if name in ("agent", "ssh") else "")


def _explained(error: ValidationError, document: Mapping[str, Any], path: Path | None) -> SettingsError:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    # A default that is made from other settings is only missed because of those.
    fault, *others = (each for each in faults if each["type"] != "default_factory_not_called")
    field = _field(fault["loc"], document)
    variable = PREFIX + "__".join(str(part) for part in fault["loc"]).upper()
    named = {name.upper() for name in os.environ}
    where = variable if variable in named else str(path) if path is not None else "environment"
    text = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        text = "there is no such setting; remove it or correct its name"
    if others:
        text += f". Also wrong: {', '.join(dict.fromkeys(_field(other['loc'], document) for other in others))}"
    return SettingsError(text, field=field, where=where)


def _field(loc: tuple[int | str, ...], document: Mapping[str, Any]) -> str:
    """A setting as people look for it: a host by its name, where it has one."""
    match loc:
        case ("ssh_hosts", int(index), *rest):
            with contextlib.suppress(LookupError, TypeError):
                return ".".join(map(str, ("ssh_hosts", document["ssh_hosts"][index]["name"], *rest)))
    return ".".join(map(str, loc))

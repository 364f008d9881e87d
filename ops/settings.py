"""Settings: the environment (`RUNTURN_*`) over secrets by file over one TOML file over the defaults.

The file is the one that `RUNTURN_CONFIG` names, else `runturn.toml` in the current directory, else
`runturn/runturn.toml` in the user's configuration directory. A setting in a table is named with two underscores
in the environment: `RUNTURN_AGENT__TURN_TIMEOUT_MS`. The file's other tables are the options of the agents of
these names; in the environment they are one JSON object, `RUNTURN_AGENTS`. Secrets by file: see `secret_files`.

To add a setting: add a field with its meaning here, and run `make docs`.
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
    StringConstraints,
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

from adapters.contract import Billing
from adapters.nearby import meant, meant_field
from adapters.request import UNKNOWN, EnvName, Label, Name
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
File = Annotated[Path, AfterValidator(_absolute)]
Printable = Annotated[str, Field(min_length=1), AfterValidator(_printable)]
AbsolutePath = Annotated[Printable, AfterValidator(_is_absolute)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lambda name: str(name).lower())]

_FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"  # package.module:function


class AgentSettings(BaseModel):
    """Table `agent`: what holds for every turn that does not say otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Name = Field(default="claude-code", description="The agent of requests that name none.")
    command: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Its program: a path, or a name in the PATH of the worker or host. Left out: `command` of its "
        "own table, else what it is usually called, such as `claude`.",
    )
    turn_timeout_ms: Milliseconds = Field(default=3_600_000, description="For one attempt.")
    read_timeout_ms: Milliseconds = Field(
        default=5_000, description="Until the first event. Raise it where `claude` starts from a cold disk."
    )
    stall_timeout_ms: int = Field(default=300_000, description="Between two events; 0 or less: never.")
    max_concurrent_agents: Annotated[int, Field(ge=1)] = Field(default=10, description="In one worker.")
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(default=5, description="Of one turn.")
    retry_backoff_ms: Milliseconds = Field(
        default=1_000,
        description="Ceiling of the first delay before another attempt; it doubles from attempt to attempt.",
    )
    max_retry_backoff_ms: Milliseconds = Field(
        default=300_000, description="Ceiling of all delays; each is drawn evenly from 0 to its ceiling."
    )
    stop_grace_ms: Milliseconds = Field(
        default=5_000, description="Between SIGINT, SIGTERM and SIGKILL to an agent that has to end."
    )
    soft_stop_ms: Annotated[int, Field(ge=0)] = Field(
        default=30_000,
        description="At `max_total_tokens` or `max_cost_usd`, an agent that can is asked to end by itself at "
        "its next tool call, and is ended after this. Before a deadline it is asked so early, or a tenth of its "
        "attempt's time if that is less, and is ended at the deadline. 0: ended at once.",
    )
    lease_ms: Annotated[int, Field(ge=1_000)] = Field(
        default=120_000, description="An agent that no worker follows is ended after this."
    )
    spool_retention_ms: Milliseconds = Field(
        default=604_800_000,
        description="A host keeps the remains of turns that this ledger does not know or cannot read for so long.",
    )


class AgentTable(BaseModel):
    """Tables of agents, by their names: what holds for one agent. All else that stands there is its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    command: Printable | None = Field(
        default=None,
        description="Its program: a path, or a name in the PATH of the worker or host. Left out: as it is usually "
        "called.",
    )
    billing: Billing | None = Field(
        default=None,
        description="Who is billed for it, `api`, `subscription` or `free`; left out: as its credentials tell.",
    )

    @property
    def options(self) -> dict[str, JsonValue]:
        """The defaults of its requests' options."""
        return dict(self.__pydantic_extra__)


class SshHostSettings(BaseModel):
    """One of `ssh_hosts`: a machine that turns run on over SSH. What ssh_config says about it holds, too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="What requests call it.")
    address: Printable | None = Field(
        default=None, description="`[user@]address[:port]`, or an alias of ssh_config; left out: the name."
    )
    user: Printable | None = Field(default=None, description="Left out: what ssh_config says, else the worker's.")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="Left out: what ssh_config says, else 22."
    )
    identity: Directory | None = Field(
        default=None,
        description="The private key to log in with, and the only one that is tried; left out: those of ssh.",
    )
    jump: Printable | None = Field(
        default=None,
        description="The way there: names of `ssh_hosts` or `[user@]address[:port]`, comma-separated; "
        "left out: what ssh_config says.",
    )
    max_concurrent_agents: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Agents at a time, whichever worker starts them; left out: no limit."
    )
    labels: dict[Name, Label] = Field(default={}, description="For requests with `host_labels`.")
    agents: dict[Name, Printable] = Field(
        default={},
        description='Where the programs of agents are, as in `{ claude-code = "/opt/claude/bin/claude" }`; '
        "others are looked for in the PATH.",
    )
    path: tuple[AbsolutePath, ...] = Field(default=(), description="Directories before the host's PATH.")
    env: tuple[EnvName, ...] = Field(
        default=(),
        description="Names of the worker's variables that agents there see; nothing else goes along but what "
        "a turn names.",
    )
    workspace_roots: tuple[AbsolutePath, ...] = Field(
        default=(), description="Workspaces lie in one of these; left out: anywhere."
    )
    spool_dir: str = Field(
        default="~/.local/state/runturn/spool",
        pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$",
        description="On the host, where running turns are kept.",
    )
    workspaces_dir: str | None = Field(
        default=None,
        pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$",
        description="On the host, where workspaces are made; left out: in `workspaces`, beside `spool_dir`.",
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

    host_keys: Literal["accept-new", "strict", "off"] = Field(
        default="accept-new",
        description="`accept-new` keeps the key of a new host, `strict` takes known ones only, `off` checks none.",
    )
    known_hosts: Directory | None = Field(
        default=None,
        description="The file that new host keys are kept in; those of ssh are read, too. "
        "Left out: in the state directory.",
    )
    config_file: Directory | None = Field(
        default=None, description="The ssh_config to follow; left out: `~/.ssh/config`."
    )
    connect_timeout_ms: Milliseconds = Field(default=30_000, description="For a connection, login included.")


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

    state_dir: Directory = Field(
        default_factory=lambda: user_state_path("runturn"),
        description="Spool, embedded broker and ledger; everybody who shares those shares this. "
        "Left out: `~/.local/state/runturn`.",
    )
    broker_url: SecretStr | None = Field(
        default=None,
        description="Where turns queue; left out: the embedded broker. "
        "`redis://HOST:PORT/0`, `amqp://USER:PASSWORD@HOST/VHOST`.",
    )
    result_url: SecretStr | None = Field(
        default=None, description="Where Celery keeps results; left out: the broker, if it is a Redis."
    )
    ledger_url: SecretStr | None = Field(
        default=None,
        description="The books: `sqlite:////absolute/path`, `postgresql://user@host/database`. "
        "Left out: SQLite in the state directory.",
    )
    events_retention_ms: Milliseconds = Field(
        default=2_592_000_000,
        description="The ledger keeps the events and the request of a settled turn for so long: 30 days.",
    )
    turns_retention_ms: Milliseconds = Field(
        default=34_560_000_000,
        description="And the turn itself, with its result and bill: 400 days. Totals stay for ever.",
    )
    log_level: LogLevel = Field(default="info", description="The least that a process logs.")
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto`: lines for people on a terminal, JSON anywhere else."
    )
    transcripts_url: SecretStr | None = Field(
        default=None,
        description="Where transcripts go: a directory, or any URL of fsspec (`s3://bucket/turns`). "
        "Left out: none are kept.",
    )
    transcripts_retention_ms: Milliseconds = Field(
        default=34_560_000_000, description="A transcript is removed after this, to a day: 400 days."
    )
    prices_file: File | None = Field(
        default=None,
        description="What models cost whose agents do not tell it (Codex, Gemini): a TOML file of the form of "
        "`adapters/prices.toml`, which it replaces. A model that is not in it stays unpriced.",
    )
    metrics_host: str = Field(default="127.0.0.1", description="Address of `/metrics`.")
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=9477, description="Port of `/metrics`; 0: any free one."
    )
    host_name: Name = Field(
        default_factory=_own_name,
        description="What requests call the machine that the worker runs on. "
        "Left out: `local`, or with PostgreSQL its node name.",
    )
    mount_roots: tuple[Directory, ...] = Field(
        default=(),
        description="Turns may bring copies of what lies below these directories of the worker's machine "
        "(`mounts` of the request); left out: of nothing.",
    )
    workspaces_retention_ms: Milliseconds = Field(
        default=604_800_000,
        description="A workspace that a turn asked to keep is removed so long after the last turn in it: 7 days.",
    )
    agent: AgentSettings = Field(default=AgentSettings(), description="See table `agent`.")
    ssh: SshSettings = Field(default=SshSettings(), description="See table `ssh`.")
    ssh_hosts: SshHosts = Field(
        default=(),
        description="Hosts over SSH, in the environment as a JSON list. With any, turns run there, and on the "
        "worker's own machine only if they ask for it by its name.",
    )
    tools: tuple[Annotated[str, StringConstraints(pattern=_FUNCTION)], ...] = Field(
        default=(),
        description="Python functions, as `package.module:function`, that requests may name as tools, beside "
        "those of entry points `runturn.tools`.",
    )
    agents: dict[str, AgentTable] = Field(
        default={}, description="Agents by name, as one JSON object: in the file, a table for each agent."
    )

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
                near = meant(field, Settings.model_fields, PREFIX) or f"; there are: {', '.join(_known())}"
                raise SettingsError(f"there is no such setting{near}", field=field, where=name)


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
    if fault["type"] == UNKNOWN:
        near = meant_field(Settings, fault["loc"]) or "; remove it or correct its name"
        text = f"there is no such setting{near}"
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

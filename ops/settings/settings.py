"""All settings, and what goes before what: the environment, secrets by file, the TOML file, the defaults."""

from __future__ import annotations

import os
import platform
import re
from typing import Annotated, Any, Literal

from platformdirs import user_state_path
from pydantic import Field, SecretStr, StringConstraints
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

from adapters.protocol.request import Name
from ops.settings import secret_files
from ops.settings.agents import AgentSettings, AgentTable
from ops.settings.ssh import SshHosts, SshSettings
from ops.settings.values import LocalPath, LogLevel, Milliseconds, QueueNames

PREFIX = "RUNTURN_"

_MODULE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
_FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"  # package.module:function


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

    state_dir: LocalPath = Field(
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
    queues: QueueNames = Field(
        default=("runturn",),
        description="The broker's queues that workers receive turns from, in the environment as a JSON list. "
        "What runturn itself sends goes to the first.",
    )
    include: tuple[Annotated[str, StringConstraints(pattern=_MODULE)], ...] = Field(
        default=(),
        description="Modules that workers import when they start, in this order: signal handlers, the set-up of "
        "Sentry or OpenTelemetry, tasks of your own. In the environment a JSON list.",
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
    prices_file: LocalPath | None = Field(
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
    mount_roots: tuple[LocalPath, ...] = Field(
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

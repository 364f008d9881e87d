"""All settings and their precedence: environment, secret files, TOML file, defaults."""

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

from adapters.isolation import Isolation, Network
from adapters.protocol.request import Name
from adapters.protocol.resources import Cpus, Disk, Memory, Processes
from ops.settings import secret_files
from ops.settings.agents import AgentSettings, AgentTable
from ops.settings.ssh import SshHosts, SshSettings
from ops.settings.values import LocalPath, LogLevel, Milliseconds, QueueNames, SandboxPath

PREFIX = "RUNTURN_"

_MODULE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
_FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"  # package.module:function


def _own_name(given: dict[str, Any]) -> str:
    """Return the default name of the worker's machine: workers on several may share a PostgreSQL ledger."""
    url = given.get("ledger_url")
    if url is None or url.get_secret_value().startswith("sqlite"):
        return "local"
    return re.sub(r"[^A-Za-z0-9._-]", "-", platform.node()).strip("-._")[:128] or "local"


class _SecretFiles(SecretsSettingsSource):
    """Secret files as a source of settings. Empty ones are ignored, like empty variables."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str | None, str, bool]:
        value, key, is_complex = super().get_field_value(field, field_name)
        return value or None, key, is_complex


class Settings(BaseSettings):
    """All settings of an operator. The repr hides URLs, which carry passwords."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True, extra="forbid", frozen=True
    )

    state_dir: LocalPath = Field(
        default_factory=lambda: user_state_path("runturn"),
        description="Directory for spools, the embedded broker and the ledger, shared by all processes that use "
        "these. Default: `~/.local/state/runturn`.",
    )
    broker_url: SecretStr | None = Field(
        default=None,
        description="Broker for turns: `redis://HOST:PORT/0`, `amqp://USER:PASSWORD@HOST/VHOST`. "
        "Default: the embedded broker.",
    )
    result_url: SecretStr | None = Field(
        default=None, description="Celery's result backend. Default: the broker, if it is Redis."
    )
    queues: QueueNames = Field(
        default=("runturn",),
        description="Broker queues that workers consume; in the environment, a JSON list. runturn itself "
        "sends to the first.",
    )
    include: tuple[Annotated[str, StringConstraints(pattern=_MODULE)], ...] = Field(
        default=(),
        description="Modules that workers import on startup, in this order: signal handlers, the setup of Sentry "
        "or OpenTelemetry, your own tasks. In the environment, a JSON list.",
    )
    ledger_url: SecretStr | None = Field(
        default=None,
        description="Database of the ledger: `sqlite:////absolute/path`, `postgresql://user@host/database`. "
        "Default: SQLite in the state directory.",
    )
    events_retention_ms: Milliseconds = Field(
        default=2_592_000_000,
        description="How long the ledger keeps the events and request of a settled turn: 30 days by default.",
    )
    turns_retention_ms: Milliseconds = Field(
        default=34_560_000_000,
        description="How long the ledger keeps a turn, with its result and bill: 400 days by default. "
        "Totals are permanent.",
    )
    log_level: LogLevel = Field(default="info", description="Lowest level that is logged.")
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto`: readable lines on a terminal, JSON elsewhere."
    )
    transcripts_url: SecretStr | None = Field(
        default=None,
        description="Archive of transcripts: a directory, or any fsspec URL (`s3://bucket/turns`). Default: none.",
    )
    transcripts_retention_ms: Milliseconds = Field(
        default=34_560_000_000,
        description="How long a transcript is kept, to the day: 400 days by default.",
    )
    prices_file: LocalPath | None = Field(
        default=None,
        description="Model prices for agents that report no cost (Codex, Gemini): a TOML file in the format of "
        "`adapters/prices.toml`, which it replaces. Models missing from it are unpriced.",
    )
    metrics_host: str = Field(default="127.0.0.1", description="Address of `/metrics`.")
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=9477, description="Port of `/metrics`; 0: any free port."
    )
    host_name: Name = Field(
        default_factory=_own_name,
        description="Name of the worker's own machine in requests. "
        "Default: `local`, or the machine's node name if the ledger is PostgreSQL.",
    )
    isolation: Isolation = Field(
        default=Isolation.NONE,
        description="Minimum isolation level for agents on the worker's own machine: `none`, `namespace` or "
        "`sandbox`, see `hosts.md`.",
    )
    max_memory: Memory | None = Field(
        default=None, description="Limit on the memory of one turn's processes on this machine, such as `4GiB`."
    )
    max_processes: Processes | None = Field(
        default=None, description="Limit on the number of one turn's processes on this machine."
    )
    max_cpus: Cpus | None = Field(
        default=None,
        description="CPU limit of one turn on this machine, in cores, such as `1.5`. Requires systemd and "
        "cgroup v2; turns are refused without.",
    )
    max_disk: Disk | None = Field(
        default=None,
        description="Limit on the files in the workspace that a turn brings to this machine, such as `10GiB`.",
    )
    sandbox_paths: tuple[SandboxPath, ...] = Field(
        default=(),
        description="Paths that sandboxes on the worker's own machine show, besides the system, the workspace and "
        'the agent\'s own files: `["/srv/toolchain", "~/.cache/pip:rw"]`. Agents may write to those with `:rw`.',
    )
    sandbox_network: Network = Field(
        default=Network.FULL,
        description="Network of sandboxes on the worker's own machine: `full`, the machine's; or `none`, which "
        "makes `isolation` `sandbox`. Agents that call an API cannot run without one.",
    )
    mount_roots: tuple[LocalPath, ...] = Field(
        default=(),
        description="Directories on the worker's machine that turns may copy from (`mounts` of the request). "
        "Default: none.",
    )
    workspaces_retention_ms: Milliseconds = Field(
        default=604_800_000,
        description="How long a workspace with `keep_workspace` is kept after its last turn: 7 days by default.",
    )
    agent: AgentSettings = Field(default=AgentSettings(), description="See table `agent`.")
    ssh: SshSettings = Field(default=SshSettings(), description="See table `ssh`.")
    ssh_hosts: SshHosts = Field(
        default=(),
        description="SSH hosts; in the environment, a JSON list. If there are any, turns run there, and on the "
        "worker's own machine only if they request it by name.",
    )
    tools: tuple[Annotated[str, StringConstraints(pattern=_FUNCTION)], ...] = Field(
        default=(),
        description="Python functions, as `package.module:function`, that requests may name as tools, in addition "
        "to those in the `runturn.tools` entry point group.",
    )
    agents: dict[str, AgentTable] = Field(
        default={}, description="Agents by name, as one JSON object; in the file, one table per agent."
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
        """Rank the environment over secret files, and those over the TOML file as read by `load_settings`."""
        secrets = secret_files.directory(os.environ)
        if secrets is None:
            return env_settings, init_settings
        return env_settings, _SecretFiles(settings_cls, secrets), init_settings

    @property
    def secrets(self) -> dict[str, str]:
        """Values that logs must not show, by variable name."""
        urls = {
            "BROKER_URL": self.broker_url,
            "RESULT_URL": self.result_url,
            "LEDGER_URL": self.ledger_url,
            "TRANSCRIPTS_URL": self.transcripts_url,
        }
        return {PREFIX + name: url.get_secret_value() for name, url in urls.items() if url is not None}

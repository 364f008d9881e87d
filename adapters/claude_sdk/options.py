"""The options of a `claude-sdk` turn: those of `claude-code`, and what only a live turn can have.

To add a flag: add a field here and its flag in `adapter`, and run `make docs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from adapters.claude_code.options import ClaudeCodeOptions
from adapters.claude_sdk.policy import Rule
from adapters.errors import InvalidRequest
from adapters.protocol.request import EnvName, Milliseconds, Name
from adapters.toolkit.options import Text

_MODEL_PARAMETERS = ("seed", "stop", "presence_penalty", "frequency_penalty")


def _rules(rules: tuple[str, ...]) -> tuple[str, ...]:
    for rule in rules:
        Rule.parse(rule)
    return rules


Rules = Annotated[tuple[Text, ...], AfterValidator(_rules)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StdioServer(_Part):
    """An MCP server that the agent starts on its host."""

    type: Literal["stdio"] = Field(default="stdio", description="Speaks on its standard input and output.")
    command: Text = Field(description="Its program on the host.")
    args: tuple[Text, ...] = Field(default=(), description="Its arguments.")
    env: dict[EnvName, str] = Field(default={}, description="Its variables. Secrets stand in a file of the spool.")


class RemoteServer(_Part):
    """An MCP server that the agent's host reaches over HTTP."""

    type: Literal["sse", "http"] = Field(description="How it is spoken to.")
    url: Text = Field(description="As the host reaches it.")
    headers: dict[Text, str] = Field(default={}, description="Of each request; kept as `env` is.")


def _kind(server: object) -> str | None:
    """Which of the two is meant, so that only its faults are told; None: neither."""
    kind = server.get("type", "stdio") if isinstance(server, Mapping) else getattr(server, "type", None)
    return {"stdio": "stdio", "sse": "remote", "http": "remote"}.get(str(kind))


McpServer = Annotated[
    Annotated[StdioServer, Tag("stdio")] | Annotated[RemoteServer, Tag("remote")],
    Discriminator(
        _kind,
        custom_error_type="mcp_server",
        custom_error_message="has to be a JSON object, its type stdio, sse or http",
    ),
]


class Permissions(_Part):
    """Who may use which tool."""

    allow: Rules = Field(default=(), description="Tools that may be used unasked.")
    deny: Rules = Field(default=(), description="Tools that are denied, in every permission mode.")
    ask: bool = Field(default=False, description="Ask the producer about what the rules leave open.")
    ask_timeout_ms: Milliseconds = Field(default=60_000, description="How long its answer is waited for.")
    default: Literal["allow", "deny"] = Field(
        default="deny", description="What holds where nobody is asked, or nobody answers."
    )


class Sandbox(_Part):
    """The agent's sandbox for shell commands (bubblewrap, seatbelt)."""

    enabled: bool = Field(default=True, description="Whether commands run in it.")
    allowed_domains: tuple[Text, ...] | None = Field(
        default=None, description="An empty list: no network. Left out: as the host's own settings say."
    )
    allow_unix_sockets: tuple[Text, ...] | None = Field(default=None, description="Sockets that may be used.")
    allow_unsandboxed_commands: bool | None = Field(
        default=None, description="Whether the agent may ask for a command to run outside."
    )
    excluded_commands: tuple[Text, ...] | None = Field(
        default=None, description="Commands that run outside, such as `docker`."
    )

    @property
    def settings(self) -> dict[str, JsonValue]:
        """As Claude Code's settings have it."""
        network = {"allowedDomains": self.allowed_domains, "allowUnixSockets": self.allow_unix_sockets}
        given: dict[str, JsonValue] = {name: list(value) for name, value in network.items() if value is not None}
        settings: dict[str, JsonValue] = {
            "enabled": self.enabled,
            "network": given or None,
            "allowUnsandboxedCommands": self.allow_unsandboxed_commands,
            "excludedCommands": None if self.excluded_commands is None else list(self.excluded_commands),
        }
        return {name: value for name, value in settings.items() if value is not None}


class Subagent(_Part):
    """A subagent that the agent can hand work to."""

    description: Text = Field(description="When it is to be used.")
    prompt: Text = Field(description="Its system prompt.")
    tools: tuple[Text, ...] | None = Field(default=None, description="Its tools; left out: all.")
    model: Text | None = Field(default=None, description="Left out: that of the turn.")


class ClaudeSdkOptions(ClaudeCodeOptions):
    """What `options` of a request may hold for the agent `claude-sdk`. Left out: Claude Code's own default."""

    mcp_servers: dict[Name, McpServer] = Field(
        default={}, description="MCP servers by name: `stdio`, `sse` or `http`."
    )
    tools: tuple[Name, ...] = Field(
        default=(), description="In-process tools by name: functions that the worker's operator has registered."
    )
    permissions: Permissions | None = Field(
        default=None,
        description="Rules `Tool` or `Tool(pattern)`. With them, `permission_mode` is `default` unless given.",
    )
    permission_prompt_tool_name: Text | None = Field(
        default=None, description="An MCP tool that is asked instead; not together with `permissions`."
    )
    stop_on_structured_output: bool = Field(
        default=True, description="End the turn as soon as the structured output was given."
    )
    sandbox: Sandbox | None = Field(default=None, description="Of shell commands on the agent's host.")
    agents: dict[Name, Subagent] = Field(default={}, description="Subagents by name.")

    @classmethod
    def parse(cls, options: Mapping[str, JsonValue]) -> Self:
        """Validate; raises InvalidRequest with the option named."""
        for name in _MODEL_PARAMETERS:
            if name in options:
                raise InvalidRequest("is no parameter of Claude Code; leave it out", field=f"options.{name}")
        return super().parse(options)

    def check(self, session_id: str | None) -> None:
        """Refuse combinations that cannot work; raises InvalidRequest."""
        super().check(session_id)
        if self.permissions is not None and self.permission_prompt_tool_name is not None:
            raise InvalidRequest(
                "and permissions are mutually exclusive: one of them answers the agent's questions",
                field="options.permission_prompt_tool_name",
            )
        if self.mcp_config is not None and (self.mcp_servers or self.tools):
            raise InvalidRequest(
                "cannot be combined with mcp_servers or tools: put its servers there", field="options.mcp_config"
            )
        if "runturn" in self.mcp_servers:
            raise InvalidRequest(
                "is the server of the in-process tools; take another name",
                field="options.mcp_servers.runturn",
            )
        if self.permissions is not None and self.permissions.ask and self._mode == "bypassPermissions":
            raise InvalidRequest("bypassPermissions asks nobody", field="options.permission_mode")

    @property
    def _mode(self) -> str | None:
        return self.permission_mode if "permission_mode" in self.model_fields_set else None

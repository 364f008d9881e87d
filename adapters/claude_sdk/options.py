"""Options of a `claude-sdk` turn: those of `claude-code`, and those of live turns.

To add one: add a field here and its flag in `adapter`, and run `make docs`.
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

    type: Literal["stdio"] = Field(default="stdio", description="Communicates over standard input and output.")
    command: Text = Field(description="Its program on the host.")
    args: tuple[Text, ...] = Field(default=(), description="Its arguments.")
    env: dict[EnvName, str] = Field(
        default={},
        description="Its environment variables, kept in a file in the spool because they may be secret.",
    )


class RemoteServer(_Part):
    """An MCP server that the agent's host reaches over HTTP."""

    type: Literal["sse", "http"] = Field(description="Transport.")
    url: Text = Field(description="URL as seen from the host.")
    headers: dict[Text, str] = Field(default={}, description="HTTP headers of each request; kept like `env`.")


def _kind(server: object) -> str | None:
    """Return the tag of the intended model, so that only its errors are reported; None if it is neither."""
    kind = server.get("type", "stdio") if isinstance(server, Mapping) else getattr(server, "type", None)
    return {"stdio": "stdio", "sse": "remote", "http": "remote"}.get(str(kind))


McpServer = Annotated[
    Annotated[StdioServer, Tag("stdio")] | Annotated[RemoteServer, Tag("remote")],
    Discriminator(
        _kind,
        custom_error_type="mcp_server",
        custom_error_message="must be a JSON object whose type is stdio, sse or http",
    ),
]


class Permissions(_Part):
    """Tool permissions."""

    allow: Rules = Field(default=(), description="Tools that may be used without approval.")
    deny: Rules = Field(default=(), description="Tools that are denied, in every permission mode.")
    ask: bool = Field(default=False, description="Ask the producer about tools that the rules leave undecided.")
    ask_timeout_ms: Milliseconds = Field(default=60_000, description="How long to wait for the producer's answer.")
    default: Literal["allow", "deny"] = Field(
        default="deny", description="Decision if the producer is not asked or does not answer."
    )


class Sandbox(_Part):
    """The agent's sandbox for shell commands (bubblewrap, seatbelt)."""

    enabled: bool = Field(default=True, description="Run commands in the sandbox.")
    allowed_domains: tuple[Text, ...] | None = Field(
        default=None, description="An empty list means no network; if omitted, the host's own settings apply."
    )
    allow_unix_sockets: tuple[Text, ...] | None = Field(default=None, description="Sockets that may be used.")
    allow_unsandboxed_commands: bool | None = Field(
        default=None, description="Let the agent request to run a command outside the sandbox."
    )
    excluded_commands: tuple[Text, ...] | None = Field(
        default=None, description="Commands that run outside the sandbox, such as `docker`."
    )

    @property
    def settings(self) -> dict[str, JsonValue]:
        """Return the sandbox in the format of Claude Code's settings."""
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
    """A subagent to which the agent can delegate work."""

    description: Text = Field(description="When to use the subagent.")
    prompt: Text = Field(description="Its system prompt.")
    tools: tuple[Text, ...] | None = Field(default=None, description="Its tools; if omitted, all.")
    model: Text | None = Field(default=None, description="Its model; if omitted, the turn's.")


class ClaudeSdkOptions(ClaudeCodeOptions):
    """Request options of the agent `claude-sdk`. Unset options use Claude Code's own defaults."""

    mcp_servers: dict[Name, McpServer] = Field(
        default={}, description="MCP servers by name: `stdio`, `sse` or `http`."
    )
    tools: tuple[Name, ...] = Field(
        default=(), description="In-process tools by name: functions registered by the worker's operator."
    )
    permissions: Permissions | None = Field(
        default=None,
        description="Rules `Tool` or `Tool(pattern)`; with rules, `permission_mode` is `default` unless given.",
    )
    permission_prompt_tool_name: Text | None = Field(
        default=None,
        description="MCP tool that decides in place of the producer; mutually exclusive with `permissions`.",
    )
    stop_on_structured_output: bool = Field(
        default=True, description="End the turn as soon as the structured output is given."
    )
    sandbox: Sandbox | None = Field(default=None, description="Sandbox for shell commands on the agent's host.")
    agents: dict[Name, Subagent] = Field(default={}, description="Subagents by name.")

    @classmethod
    def parse(cls, options: Mapping[str, JsonValue]) -> Self:
        """Return the validated options. Raise InvalidRequest, naming the option, if one is invalid."""
        for name in _MODEL_PARAMETERS:
            if name in options:
                raise InvalidRequest("is not a parameter of Claude Code; omit it", field=f"options.{name}")
        return super().parse(options)

    def check(self, session_id: str | None) -> None:
        """Raise InvalidRequest for options that cannot be combined."""
        super().check(session_id)
        if self.permissions is not None and self.permission_prompt_tool_name is not None:
            raise InvalidRequest(
                "and permissions are mutually exclusive: only one can answer the agent's questions",
                field="options.permission_prompt_tool_name",
            )
        if self.mcp_config is not None and (self.mcp_servers or self.tools):
            raise InvalidRequest(
                "cannot be combined with mcp_servers or tools: put its servers there", field="options.mcp_config"
            )
        if "runturn" in self.mcp_servers:
            raise InvalidRequest(
                "is reserved for the in-process tools; choose another name",
                field="options.mcp_servers.runturn",
            )
        if self.permissions is not None and self.permissions.ask and self._mode == "bypassPermissions":
            raise InvalidRequest("bypassPermissions never asks the producer", field="options.permission_mode")

    @property
    def _mode(self) -> str | None:
        return self.permission_mode if "permission_mode" in self.model_fields_set else None

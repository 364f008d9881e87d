"""Options of a Gemini CLI turn and their flags.

To add one: add a field here, its flag to `FLAGS`, and run `make docs`. Options that the CLI takes only from its
settings are not here: it reads only those of root, its user and the workspace (0.61.0), so they belong to the
host.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from adapters.toolkit.options import AgentOptions, Text, given_flags


class GeminiOptions(AgentOptions):
    """Request options of the agent `gemini`. Unset options use the Gemini CLI's own defaults."""

    approval_mode: Literal["default", "auto_edit", "yolo", "plan"] = Field(
        default="yolo",
        description="By default, Gemini acts without approval: a headless agent cannot ask. In the other modes, "
        "tools that need approval are unavailable.",
    )
    model: Text | None = Field(default=None, description="Model name, as for `gemini --model`.")
    sandbox: bool | None = Field(
        default=None, description="Run its tools in its sandbox, which the host must provide."
    )
    allowed_tools: Text | None = Field(
        default=None, description="Comma-separated tools that run without approval in any mode."
    )
    allowed_mcp_servers: Text | None = Field(default=None, description="Comma-separated; if omitted, all.")
    extensions: Text | None = Field(default=None, description="Comma-separated; `none` for none; if omitted, all.")
    include_directories: Text | None = Field(
        default=None, description="Comma-separated directories on the host, in addition to the workspace."
    )
    slash_command: bool = Field(
        default=False, description="true: a prompt with a leading `/` is a command; otherwise, it is text."
    )
    file_references: bool = Field(
        default=False,
        description="true: `@path` in a prompt inserts the file's content; otherwise, it is escaped with a "
        "backslash and stays text.",
    )


FLAGS: dict[str, str] = {
    "approval_mode": "--approval-mode",
    "model": "--model",
    "allowed_tools": "--allowed-tools",
    "allowed_mcp_servers": "--allowed-mcp-server-names",
    "extensions": "--extensions",
    "include_directories": "--include-directories",
}


def flags(options: GeminiOptions) -> list[str]:
    """Return the options as arguments of the form `flag=value`, so that no value is mistaken for a flag."""
    arguments = given_flags(options, FLAGS)
    if options.sandbox is not None:
        arguments.append(f"--sandbox={str(options.sandbox).lower()}")
    return arguments

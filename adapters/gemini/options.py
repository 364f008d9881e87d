"""The options of a Gemini CLI turn, and the flag that each of them becomes.

To add a flag: add a field here, its flag in `FLAGS`, and run `make docs`. What the CLI takes from its settings
alone is not here: it reads only those of root, its user and the workspace (0.61.0), so they are the host's own.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from adapters.toolkit.options import AgentOptions, Text, given_flags


class GeminiOptions(AgentOptions):
    """What `options` of a request may hold for the agent `gemini`. Left out: the Gemini CLI's own default."""

    approval_mode: Literal["default", "auto_edit", "yolo", "plan"] = Field(
        default="yolo",
        description="By default it acts unasked: nobody is there to be asked. In the other modes, tools that it "
        "would have to ask for are not there.",
    )
    model: Text | None = Field(default=None, description="A name, as `gemini --model` takes it.")
    sandbox: bool | None = Field(
        default=None, description="Run its tools in its sandbox; the host has to have one."
    )
    allowed_tools: Text | None = Field(
        default=None, description="Comma-separated: these run unasked in any approval mode."
    )
    allowed_mcp_servers: Text | None = Field(default=None, description="Comma-separated; left out, all.")
    extensions: Text | None = Field(default=None, description="Comma-separated; `none` for none; left out, all.")
    include_directories: Text | None = Field(
        default=None, description="Comma-separated directories on the host, beside the workspace."
    )
    slash_command: bool = Field(
        default=False, description="true: a prompt with a leading `/` is a command; otherwise it is text."
    )
    file_references: bool = Field(
        default=False,
        description="true: `@path` in a prompt stands for what the file holds; otherwise a backslash before it "
        "keeps it text.",
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
    """The options as arguments, each flag and its value in one, so that no value is taken for a flag."""
    arguments = given_flags(options, FLAGS)
    if options.sandbox is not None:
        arguments.append(f"--sandbox={str(options.sandbox).lower()}")
    return arguments

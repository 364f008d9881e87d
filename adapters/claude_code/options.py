"""Options of a Claude Code turn and their flags.

To add one: add a field here, its flag to `FLAGS` (one without a value: to `flags`), and run `make docs`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapters.errors import InvalidRequest
from adapters.toolkit.options import AgentOptions, Text, given_flags


class ClaudeCodeOptions(AgentOptions):
    """Request options of the agent `claude-code`. Unset options use Claude Code's own defaults."""

    permission_mode: Literal[
        "default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto", "manual"
    ] = Field(
        default="bypassPermissions",
        description="By default, Claude Code acts without approval: a headless agent cannot ask.",
    )
    model: Text | None = Field(default=None, description="Alias or full model name, as for `claude --model`.")
    fallback_model: Text | None = Field(default=None, description="Model to use when the first is overloaded.")
    max_turns: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Maximum number of agentic steps within this turn."
    )
    max_budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="The lower of this and the request's `max_cost_usd` applies."
    )
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None, description="Reasoning effort."
    )
    allowed_tools: Text | None = Field(default=None, description="Comma-separated.")
    disallowed_tools: Text | None = Field(default=None, description="Comma-separated.")
    system_prompt: Text | None = Field(default=None, description="Appended to Claude Code's own prompt.")
    mcp_config: Text | None = Field(
        default=None, description="Path on the host, absolute or relative to the workspace."
    )
    session_persistence: bool = Field(
        default=True,
        description="false (`--no-session-persistence`): no session files, so nothing to resume, no exact usage "
        "for a killed turn, and no way to check whether usage with subagents is complete.",
    )
    slash_command: bool = Field(
        default=False, description="true: a prompt with a leading `/` is a command; otherwise, it is text."
    )
    max_api_retries: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="`CLAUDE_CODE_MAX_RETRIES`; Claude Code's own default is 10, about 185 s."
    )

    def check(self, session_id: str | None) -> None:
        """Raise InvalidRequest for options that cannot be combined."""
        if session_id is not None and not self.session_persistence:
            raise InvalidRequest(
                "false cannot be combined with session_id: a session without files cannot be resumed",
                field="options.session_persistence",
            )


FLAGS: dict[str, str] = {
    "permission_mode": "--permission-mode",
    "model": "--model",
    "fallback_model": "--fallback-model",
    "max_turns": "--max-turns",
    "max_budget_usd": "--max-budget-usd",
    "effort": "--effort",
    "allowed_tools": "--allowedTools",
    "disallowed_tools": "--disallowedTools",
    "system_prompt": "--append-system-prompt",
    "mcp_config": "--mcp-config",
}


def flags(options: ClaudeCodeOptions) -> list[str]:
    """Return the options as arguments of the form `flag=value`, so that no value is mistaken for a flag."""
    arguments = given_flags(options, FLAGS)
    if not options.session_persistence:
        arguments.append("--no-session-persistence")
    return arguments

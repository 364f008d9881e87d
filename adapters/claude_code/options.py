"""The options of a Claude Code turn, and the flag that each of them becomes.

To add a flag: add a field here, its flag in `FLAGS`, and a line to the table in the README.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from adapters.errors import InvalidRequest
from adapters.request import invalid

MAX_ARGUMENT_BYTES = 100_000  # the kernel refuses one argument of 128 KiB (E2BIG)


def _fits_argv(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character; remove it")
    if len(text.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes, which no process can be given")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_fits_argv)]


class ClaudeCodeOptions(BaseModel):
    """What `options` of a request may hold for the agent `claude-code`. Left out: Claude Code's own default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    permission_mode: Literal[
        "default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto", "manual"
    ] = "bypassPermissions"  # nobody is there to be asked
    model: Text | None = None
    fallback_model: Text | None = None
    max_turns: Annotated[int, Field(ge=1)] | None = None  # agentic steps within this turn
    max_budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    allowed_tools: Text | None = None  # comma-separated
    disallowed_tools: Text | None = None  # comma-separated
    system_prompt: Text | None = None  # appended to Claude Code's own
    mcp_config: Text | None = None  # path on the host; relative to the workspace
    session_persistence: bool = True  # False: no session files, so the session cannot be resumed
    slash_command: bool = False  # True: a prompt with a leading / is a command to Claude Code
    max_api_retries: Annotated[int, Field(ge=0)] | None = None  # Claude Code's own: 10, about 185 s

    @classmethod
    def parse(cls, options: dict[str, JsonValue]) -> ClaudeCodeOptions:
        """Validate; raises InvalidRequest with the option named."""
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            raise invalid(error, "options") from error

    def check(self, session_id: str | None) -> None:
        """Refuse combinations that cannot work; raises InvalidRequest."""
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
    """The options as arguments, each flag and its value in one, so that no value is taken for a flag."""
    arguments = [
        f"{flag}={value}" for name, flag in FLAGS.items() if (value := getattr(options, name)) is not None
    ]
    if not options.session_persistence:
        arguments.append("--no-session-persistence")
    return arguments

"""The real Claude Code CLI against the scripted API: its binary, environment and command line."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from pydantic import JsonValue

from .script import Usage

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}


def claude_binary() -> Path | None:
    """The CLI that the claude-agent-sdk wheel carries, else `claude` on PATH, else None."""
    # find_spec does not import the package, which would cost 0.6 s and 50 MB.
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "_bundled" / "claude"
        if bundled.is_file():
            return bundled
    found = shutil.which("claude")
    return Path(found) if found else None


def claude_environment(
    base_url: str,
    home: Path,
    *,
    key: str | None = "test-key",
    token: str | None = None,
    max_retries: int | None = None,
) -> dict[str, str]:
    """The whole environment for a CLI run: nothing of the caller's but PATH, so no real key can leak in.

    Args:
        base_url: of the scripted API.
        home: an empty directory; it becomes HOME and holds the CLI's configuration and sessions.
        key: ANTHROPIC_API_KEY, which may choose the script. None sets none.
        token: CLAUDE_CODE_OAUTH_TOKEN, for what only subscription logins see.
        max_retries: of the CLI itself after 401, 429, 5xx; None leaves its default of 10.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": tempfile.gettempdir(),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_BASE_URL": base_url,
        **_QUIET,
    }
    if key is not None:
        environment["ANTHROPIC_API_KEY"] = key
    if token is not None:
        environment["CLAUDE_CODE_OAUTH_TOKEN"] = token
    if max_retries is not None:
        environment["CLAUDE_CODE_MAX_RETRIES"] = str(max_retries)
    if os.geteuid() == 0:
        environment["IS_SANDBOX"] = "1"  # else the CLI refuses bypassPermissions to root
    return environment


def claude_command(binary: Path, *options: str, model: str = "claude-sonnet-4-5") -> list[str]:
    """One non-interactive turn that reads its prompt from stdin and prints events as JSON lines."""
    return [
        str(binary), "-p", "--output-format", "stream-json", "--verbose",
        "--permission-mode", "bypassPermissions", "--model", model, *options,
    ]  # fmt: skip


def reported_usage(result: dict[str, JsonValue]) -> dict[str, Usage]:
    """The `modelUsage` of a result event, in the shape of `Bill.by_model`.

    It is of one invocation only in a fresh session: a resumed one counts on from where the session stood.
    """
    models = result["modelUsage"]
    assert isinstance(models, dict)
    return {model: _usage(usage) for model, usage in models.items()}


def _usage(usage: JsonValue) -> Usage:
    assert isinstance(usage, dict)
    fields = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    counts = [usage.get(name) for name in (*fields, "cacheCreationEphemeral1hInputTokens")]
    return Usage(*[count if isinstance(count, int) else 0 for count in counts])

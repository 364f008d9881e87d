"""The environment in which the real Codex CLI talks to the scripted API and to nobody else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MODEL = "gpt-6.1-sol"  # one that Codex 0.169.0 knows: it prints a complaint of others

_CONFIG = """\
model = "{model}"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{base_url}/v1"
env_key = "CODEX_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 1
"""


def codex_environment(base_url: str, home: Path) -> dict[str, str]:
    """The whole environment for a CLI run: nothing of the caller's but PATH, so no real key can leak in.

    `home` is an empty directory; it becomes HOME and holds the CLI's configuration and sessions.
    """
    configure(base_url, home)
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": tempfile.gettempdir(),
        "CODEX_API_KEY": "test-key",
    }


def configure(base_url: str, home: Path) -> None:
    """Point the Codex of that home to the scripted API: no variable does."""
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(_CONFIG.format(base_url=base_url, model=MODEL))

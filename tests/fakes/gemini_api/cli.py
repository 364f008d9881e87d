"""The real Gemini CLI against the scripted API: its environment and settings."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},  # with a base URL, the key alone does not tell it
    "general": {
        "maxAttempts": 1,
        "enableAutoUpdate": False,
        # Else every start removes the sessions of the workspace without an answer, those under way among them.
        "sessionRetention": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
}


def gemini_environment(base_url: str, home: Path) -> dict[str, str]:
    """The whole environment of a worker whose agents use the API: nothing of the caller's but PATH."""
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": tempfile.gettempdir(),
        "GEMINI_API_KEY": "test-key",
        "GOOGLE_GEMINI_BASE_URL": base_url,
    }


def write_settings(home: Path) -> None:
    """What an operator puts on a host."""
    folder = home / ".gemini"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(_SETTINGS))

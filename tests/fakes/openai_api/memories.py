"""What makes Codex ask models beside a turn: memories are on, and a session of its user's has none yet."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

_THREAD = "019a0000-0000-7000-8000-000000000001"
_FEATURES = """
[features]
memories = true
"""


def leave_an_earlier_session(home: Path) -> None:
    """Configure the home of `codex_environment` so, before Codex is first started there."""
    folder, then = home / ".codex", datetime.now(UTC) - timedelta(days=1)
    with (folder / "config.toml").open("a") as config:
        config.write(_FEATURES)
    rollout = folder / then.strftime(f"sessions/%Y/%m/%d/rollout-%Y-%m-%dT%H-%M-%S-{_THREAD}.jsonl")
    rollout.parent.mkdir(parents=True)
    at = then.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    rollout.write_text("".join(json.dumps({"timestamp": at, **record}) + "\n" for record in _records(at, home)))
    os.utime(rollout, (then.timestamp(), then.timestamp()))  # by this, Codex tells how long it has rested


def _records(at: str, home: Path) -> list[dict[str, object]]:
    meta = {
        "id": _THREAD, "session_id": _THREAD, "timestamp": at, "cwd": str(home), "originator": "codex-tui",
        "cli_version": "0.128.0", "source": "cli", "model_provider": "scripted",
    }  # fmt: skip
    asked, said = "please remember this", "I will"
    return [
        {"type": "session_meta", "payload": meta},
        {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "1", "model_context_window": 258400}},
        {"type": "response_item", "payload": _message("user", "input_text", asked)},
        {"type": "event_msg", "payload": {"type": "user_message", "message": asked, "images": []}},
        {"type": "response_item", "payload": _message("assistant", "output_text", said)},
        {"type": "event_msg", "payload": {"type": "agent_message", "message": said}},
        {"type": "event_msg", "payload": {"type": "task_complete", "turn_id": "1", "last_agent_message": said}},
    ]


def _message(role: str, kind: str, text: str) -> dict[str, object]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

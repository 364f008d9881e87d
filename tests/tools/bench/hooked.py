"""Fake agent: speaks Claude Code's control protocol, calls a hook before each tool, and reports the times."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

HOOKS = 200


def say(record: dict[str, Any]) -> None:
    """Print one record as a line."""
    print(json.dumps(record), flush=True)


def hear(kind: str) -> dict[str, Any]:
    """Return the next record of that type."""
    while (record := json.loads(sys.stdin.readline()))["type"] != kind:
        pass
    return record


def main() -> None:
    """Wait for the greeting, call the hooks, and report the times."""
    if sys.argv[1:] == ["-v"]:
        print("2.1.330 (Claude Code)")
        return
    greeting = hear("control_request")
    answer = {"hook_on_failure_supported": True, "commands": []}
    response = {"subtype": "success", "request_id": greeting["request_id"], "response": answer}
    say({"type": "control_response", "response": response})
    hear("user")
    took = []
    for number in range(HOOKS):
        happened = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "true"}}
        asked = {
            "subtype": "hook_callback",
            "callback_id": "hook_0",
            "input": happened,
            "tool_use_id": str(number),
        }
        began = time.perf_counter()
        say({"type": "control_request", "request_id": f"hook-{number}", "request": asked})
        hear("control_response")
        took.append(time.perf_counter() - began)
    say({"type": "result", "subtype": "success", "is_error": False, "result": json.dumps(took), "num_turns": 1,
         "duration_ms": 1, "duration_api_ms": 1, "session_id": "s"})  # fmt: skip
    sys.stdin.read()


if __name__ == "__main__":
    main()

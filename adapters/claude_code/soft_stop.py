"""Soft stop of Claude Code: a hook in its settings that checks for a stop file before every tool call.

Measured with 2.1.330: the call and its parallel calls are denied with the reason, no further request goes to the
model, and the result event has the exact usage and the terminal reason `hook_stopped`. A subagent stops in the
same way and returns; its main agent stops at its own next call. Hooks of the user's settings run in addition. A
check costs about 5 ms, most of it the CLI's overhead of starting a program.
"""

from __future__ import annotations

import orjson

STOPPED = "hook_stopped"  # the terminal reason

# Run by bash, zsh or sh. The file is one line and appears atomically.
_LOOK = '{ IFS= read -r word <"$RUNTURN_SPOOL/files/stop"; } 2>/dev/null && printf "%s\\n" "$word"; exit 0'
_HOOK = {"matcher": "*", "hooks": [{"type": "command", "command": _LOOK, "timeout": 10}]}

SETTINGS = orjson.dumps({"hooks": {"PreToolUse": [_HOOK]}}).decode()  # for `--settings`


def stop_file(reason: str) -> bytes:
    """Return the hook output that stops the agent with this reason."""
    denial = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }
    return orjson.dumps({"continue": False, "stopReason": reason, "hookSpecificOutput": denial})

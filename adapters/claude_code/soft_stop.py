"""How Claude Code is asked to end by itself: a hook of its settings that looks before every tool call.

Measured with 2.1.330: the call is denied with the reason, as are those beside it, no further request goes to the
model, and the result event has the exact bill and the terminal reason `hook_stopped`. A subagent ends in the same
way and hands back; its main agent ends at its own next call. Hooks of the user's own settings run beside this one.
A look costs about 5 ms, most of them the CLI's own for starting any program.
"""

from __future__ import annotations

import orjson

STOPPED = "hook_stopped"  # the terminal reason

# Run by bash, zsh or sh. The file is one line, and is there all at once or not at all.
_LOOK = '{ IFS= read -r word <"$RUNTURN_SPOOL/stop"; } 2>/dev/null && printf "%s\\n" "$word"; exit 0'
_HOOK = {"matcher": "*", "hooks": [{"type": "command", "command": _LOOK, "timeout": 10}]}

SETTINGS = orjson.dumps({"hooks": {"PreToolUse": [_HOOK]}}).decode()  # for `--settings`


def stop_file(reason: str) -> bytes:
    """What the hook prints, so that the agent ends with this reason."""
    denial = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }
    return orjson.dumps({"continue": False, "stopReason": reason, "hookSpecificOutput": denial})

"""Hooks and permission checks around the agent's tool calls. All of them fail closed.

A hook's answer is a value of Claude Code's hook protocol. No failure lets a tool run: an exception is a denial,
and without an answer, the agent waits until its lease expires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue

from adapters.claude_sdk.options import ClaudeSdkOptions, Permissions
from adapters.claude_sdk.policy import Policy
from adapters.live import Desk, Permission, Verdict

Answer = dict[str, Any]  # a hook's answer

# The hooks with their effect on failure. The agent refers to them by position, and a worker of another version may
# take over a turn: never change their order.
HOOKS: tuple[tuple[str, Literal["block"] | None], ...] = (
    ("PreToolUse", "block"),
    ("UserPromptSubmit", "block"),
    ("PostToolUse", None),
    ("Stop", None),
)
# Seconds. A hook must not time out before the lease: Claude Code would continue without an answer.
HOOK_TIMEOUT = 14 * 86_400.0

_STRUCTURED_OUTPUT = "StructuredOutput"
_NOT_TOOLS = (_STRUCTURED_OUTPUT,)  # delivers the turn's answer: exempt from limits and rules
_RULE = "One of this turn's rules denies {}"


class Gates:
    """The hooks of one conversation."""

    def __init__(self, options: ClaudeSdkOptions, desk: Desk) -> None:
        self._desk = desk
        self._permissions = options.permissions or Permissions()
        self._policy = Policy.of(self._permissions.allow, self._permissions.deny)
        self._stops_on_output = options.stop_on_structured_output

    async def answer(self, happened: Mapping[str, Any]) -> Answer:
        """Answer a hook."""
        event = happened.get("hook_event_name")
        try:
            if event == "PreToolUse":
                return self._before_tool(str(happened["tool_name"]), happened["tool_input"])
            if event == "UserPromptSubmit":
                return self._before_prompt()
            if event == "PostToolUse":
                return self._after_tool(happened["tool_name"])
        except Exception as error:  # fail closed
            reason = f"This turn's gate failed ({type(error).__name__})"
            return _blocked(reason) if event == "UserPromptSubmit" else _denied(reason)
        return {}

    def _before_tool(self, tool: str, arguments: Mapping[str, JsonValue]) -> Answer:
        if tool in _NOT_TOOLS:
            return {}
        reason = self._desk.refusal()
        if reason is not None:
            return {**_denied(reason), "continue_": False, "stopReason": reason}  # the agent stops itself
        return _denied(_RULE.format(tool)) if self._policy.denied(tool, arguments) else {}

    def _before_prompt(self) -> Answer:
        """Block a prompt to an agent that must stop."""
        reason = self._desk.refusal()
        return {} if reason is None else _blocked(reason)

    def _after_tool(self, tool: str) -> Answer:
        if self._stops_on_output and tool == _STRUCTURED_OUTPUT:
            return {"continue_": False, "stopReason": "the structured output was given"}
        return {}

    async def verdict(self, tool: str, arguments: Mapping[str, JsonValue], call_id: str) -> Verdict:
        """Return the verdict on a tool that Claude Code's own rules leave undecided."""
        try:
            return await self._verdict(tool, arguments, call_id)
        except Exception as error:
            return Verdict(False, f"This turn's policy failed ({type(error).__name__})")

    async def _verdict(self, tool: str, arguments: Mapping[str, JsonValue], call_id: str) -> Verdict:
        objection = self._objection(tool, arguments)
        if objection is not None:
            return Verdict(False, objection)
        if tool in _NOT_TOOLS or self._policy.allowed(tool, arguments):
            return Verdict(True)
        asked = self._permissions
        if asked.ask:
            answer = await self._desk.ask(Permission(tool, call_id, arguments), asked.ask_timeout_ms / 1000)
            if answer is not None:
                objection = self._desk.refusal() if answer.allowed else None  # the answer may have taken long
                return answer if objection is None else Verdict(False, objection)
        return Verdict(asked.default == "allow", f"None of this turn's rules allows {tool}")

    def _objection(self, tool: str, arguments: Mapping[str, JsonValue]) -> str | None:
        reason = self._desk.refusal()
        if reason is not None:
            return reason
        return _RULE.format(tool) if self._policy.denied(tool, arguments) else None


def _denied(reason: str) -> Answer:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    }


def _blocked(reason: str) -> Answer:
    return {"decision": "block", "reason": reason}

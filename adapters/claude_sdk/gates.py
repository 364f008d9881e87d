"""What the agent is told before and after its tools: the hooks, and who may use what. All of them fail closed.

A hook's answer is a value of Claude Code's hook protocol. Nothing here lets a tool run because something went
wrong: what raises is a denial, and while nobody answers, the agent waits until its lease ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue

from adapters.claude_sdk.options import ClaudeSdkOptions, Permissions
from adapters.claude_sdk.policy import Policy
from adapters.live import Desk, Permission, Verdict

Answer = dict[str, Any]  # of a hook

# The hooks, and what it means when one fails. The agent knows them by their order, and a worker of another version
# may take a turn over: never change it.
HOOKS: tuple[tuple[str, Literal["block"] | None], ...] = (
    ("PreToolUse", "block"),
    ("UserPromptSubmit", "block"),
    ("PostToolUse", None),
    ("Stop", None),
)
# Seconds. A hook must not run out before the lease does: Claude Code goes on without an answer then.
HOOK_TIMEOUT = 14 * 86_400.0

_STRUCTURED_OUTPUT = "StructuredOutput"
_NOT_TOOLS = (_STRUCTURED_OUTPUT,)  # how a turn gives its answer: no limit and no rule may be in its way
_RULE = "A rule of this turn denies {}"


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
        except Exception as error:  # a gate that fails is closed
            reason = f"The gate of this turn failed ({type(error).__name__})"
            return _blocked(reason) if event == "UserPromptSubmit" else _denied(reason)
        return {}

    def _before_tool(self, tool: str, arguments: Mapping[str, JsonValue]) -> Answer:
        if tool in _NOT_TOOLS:
            return {}
        reason = self._desk.refusal()
        if reason is not None:
            return {**_denied(reason), "continue_": False, "stopReason": reason}  # and ends by itself
        return _denied(_RULE.format(tool)) if self._policy.denied(tool, arguments) else {}

    def _before_prompt(self) -> Answer:
        """What is said to an agent that has to end is not taken up any more."""
        reason = self._desk.refusal()
        return {} if reason is None else _blocked(reason)

    def _after_tool(self, tool: str) -> Answer:
        if self._stops_on_output and tool == _STRUCTURED_OUTPUT:
            return {"continue_": False, "stopReason": "the structured output was given"}
        return {}

    async def verdict(self, tool: str, arguments: Mapping[str, JsonValue], call_id: str) -> Verdict:
        """Whether a tool may be used that Claude Code's own rules leave open."""
        try:
            return await self._verdict(tool, arguments, call_id)
        except Exception as error:
            return Verdict(False, f"The policy of this turn failed ({type(error).__name__})")

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
                objection = self._desk.refusal() if answer.allowed else None  # that may have taken its time
                return answer if objection is None else Verdict(False, objection)
        return Verdict(asked.default == "allow", f"No rule of this turn allows {tool}")

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

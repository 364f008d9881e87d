"""What the agent is told before and after its tools: the hooks, and who may use what. All of them fail closed.

A hook's answer is a value of Claude Code's hook protocol. Nothing here lets a tool run because something went
wrong: what raises is a denial, and while nobody answers, the agent waits until its lease ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from adapters.claude_sdk.options import ClaudeSdkOptions, Permissions
from adapters.claude_sdk.policy import Policy
from adapters.live import Desk, Permission, Verdict

Answer = dict[str, Any]  # of a hook

_STRUCTURED_OUTPUT = "StructuredOutput"
_NOT_TOOLS = (_STRUCTURED_OUTPUT,)  # how a turn gives its answer: no limit and no rule may be in its way


class Gates:
    """The hooks of one conversation."""

    def __init__(self, options: ClaudeSdkOptions, desk: Desk) -> None:
        self._desk = desk
        self._permissions = options.permissions or Permissions()
        self._policy = Policy.of(self._permissions.allow, self._permissions.deny)
        self._stops_on_output = options.stop_on_structured_output

    async def before_tool(self, happened: Mapping[str, Any]) -> Answer:
        """PreToolUse."""
        try:
            tool = str(happened["tool_name"])
            reason = None if tool in _NOT_TOOLS else self._objection(tool, happened["tool_input"])
        except Exception as error:
            reason = f"The gate of this turn failed ({type(error).__name__})"
        return {} if reason is None else _denial(reason)

    async def after_tool(self, happened: Mapping[str, Any]) -> Answer:
        """PostToolUse; the event is the parser's."""
        if self._stops_on_output and happened.get("tool_name") == _STRUCTURED_OUTPUT:
            return {"continue_": False, "stopReason": "the structured output was given"}
        return {}

    async def before_prompt(self, _: Mapping[str, Any]) -> Answer:
        """UserPromptSubmit: what is said to an agent that has to end is not taken up any more."""
        try:
            reason = self._desk.refusal()
        except Exception as error:
            reason = f"The gate of this turn failed ({type(error).__name__})"
        return {} if reason is None else {"decision": "block", "reason": reason}

    async def at_stop(self, _: Mapping[str, Any]) -> Answer:
        """Stop; the reason is the parser's event."""
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
        return f"A rule of this turn denies {tool}" if self._policy.denied(tool, arguments) else None


def _denial(reason: str) -> Answer:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    }

"""The agents that this installation knows, configured.

To add an agent: write its adapter and add it here.
"""

from __future__ import annotations

from pydantic import JsonValue

from adapters.claude_code.adapter import ClaudeCode
from adapters.claude_code.options import ClaudeCodeOptions
from adapters.codex.adapter import Codex
from adapters.codex.adapter import create as create_codex
from adapters.contract import Adapter, AdapterFactory, AgentConfig
from adapters.errors import InvalidRequest
from adapters.gemini.adapter import Gemini
from adapters.gemini.adapter import create as create_gemini
from adapters.registry import Registry
from adapters.scripted import Scripted
from ops.errors import SettingsError
from ops.settings import Settings
from workers.prices import price_table


def build_registry(settings: Settings) -> Registry:
    """All agents, with the operator's defaults. Raises SettingsError with the faulty option named."""
    claude_code = ClaudeCode(
        command=settings.agent.command,
        defaults=_claude_code_defaults(settings.agents.get(ClaudeCode.name, {})),
        stop_grace_s=settings.agent.stop_grace_ms / 1000,
    )
    codex = _created(create_codex, Codex.name, settings)
    gemini = _created(create_gemini, Gemini.name, settings)
    registry = Registry([claude_code, codex, gemini, Scripted(claude_code)])
    for name in settings.agents:
        if name not in registry.names:
            known = ", ".join(registry.names)
            raise SettingsError(
                f"there is no such agent or setting; agents: {known}", field=name, where="settings"
            )
    return registry


def _created(create: AdapterFactory, name: str, settings: Settings) -> Adapter:
    options = settings.agents.get(name, {})
    grace_s = settings.agent.stop_grace_ms / 1000
    try:
        return create(AgentConfig(options=options, stop_grace_s=grace_s, prices=price_table(settings)))
    except InvalidRequest as error:
        raise SettingsError(error.message.removeprefix("options."), field=name, where="settings") from error


def _claude_code_defaults(options: dict[str, JsonValue]) -> ClaudeCodeOptions:
    try:
        return ClaudeCodeOptions.parse(options)
    except InvalidRequest as error:
        message = error.message.removeprefix("options.")
        raise SettingsError(message, field=ClaudeCode.name, where="settings") from error

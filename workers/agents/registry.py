"""Configured agents of this installation: the built-in ones, and those of other packages."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import partial
from importlib.metadata import EntryPoint, entry_points

import structlog

from adapters.contract import AgentConfig
from adapters.prices import PriceTable
from adapters.registry import BUILT_IN, GROUP, Registry, discover
from ops.errors import SettingsError
from ops.settings import AgentTable, Settings

log = structlog.get_logger(__name__)


def build_registry(settings: Settings) -> Registry:
    """Return all agents, with the operator's defaults. Raises SettingsError naming the faulty option."""
    built_in = [entry.name for entry in BUILT_IN]
    registry = discover([*BUILT_IN, *_installed()], partial(_config, settings, price_table(settings)), built_in)
    for failed in registry.failed:
        if failed.options_refused or (failed.name in built_in and failed.name not in registry.names):
            raise SettingsError(failed.reason.removeprefix("options."), field=failed.name, where="settings")
    broken = {failed.name for failed in registry.failed}
    for name in settings.agents.keys() - broken:
        _check_billing(settings, registry, name)
    return registry


def report_failed(registry: Registry) -> None:
    """Log the agents that could not be loaded; turns of other agents are not affected."""
    for failed in registry.failed:
        log.warning("agent could not be loaded", agent=failed.name, source=failed.source, reason=failed.reason)


def price_table(settings: Settings) -> PriceTable:
    """Return the prices of the operator's file, or else those shipped with runturn. Raises SettingsError."""
    if settings.prices_file is None:
        return PriceTable.builtin(_today)
    try:
        return PriceTable.parse(settings.prices_file.read_text("utf-8"), _today)
    except OSError as error:
        text = f"{settings.prices_file} cannot be read: {error.strerror}"
        raise SettingsError(text, field="prices_file", where="settings") from error
    except ValueError as error:
        raise SettingsError(f"{settings.prices_file}: {error}", field="prices_file", where="settings") from error


def _today() -> date:
    return datetime.now(UTC).date()


def _installed() -> list[EntryPoint]:
    """Return the agents of other packages, in an order that is the same at every start."""
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _config(settings: Settings, prices: PriceTable, name: str) -> AgentConfig:
    table, agent = settings.agents.get(name, AgentTable()), settings.agent
    return AgentConfig(
        command=(agent.command if name == agent.kind else None) or table.command,
        options=table.options,
        stop_grace_s=agent.stop_grace_ms / 1000,
        prices=prices,
        tools=settings.tools,
    )


def _check_billing(settings: Settings, registry: Registry, name: str) -> None:
    """Raise SettingsError if an agent does not support the billing mode of its table."""
    billing, possible = settings.agents[name].billing, registry.get(name).capabilities.billing
    if billing is not None and billing not in possible:
        text = f"agent {name} supports only {', '.join(sorted(possible))}"
        raise SettingsError(text, field=f"{name}.billing", where="settings")

"""Billing mode of an agent: the operator's setting, else derived from its credentials."""

from __future__ import annotations

from collections.abc import Collection

from adapters.contract import Billing, Capabilities


def billing_modes(
    setting: Billing | None, capabilities: Capabilities, credentials: Collection[str]
) -> tuple[Billing, ...]:
    """Return all possible billing modes, the effective one first. `credentials` are those the agent would find."""
    possible = [mode for mode in Billing if mode in capabilities.billing]
    first = setting or _by_credentials(capabilities, credentials)
    return tuple(sorted(possible, key=lambda mode: mode is not first)) if first in possible else tuple(possible)


def _by_credentials(capabilities: Capabilities, credentials: Collection[str]) -> Billing:
    if capabilities.api_credentials & set(credentials):
        return Billing.API
    # Without a key, the agent needs a login on the host, and people log in with subscriptions.
    return Billing.SUBSCRIPTION

"""Who is billed for an agent's tokens: as the operator says, else as what it logs in with tells."""

from __future__ import annotations

from collections.abc import Collection

from adapters.contract import Billing, Capabilities


def billing_modes(
    setting: Billing | None, capabilities: Capabilities, credentials: Collection[str]
) -> tuple[Billing, ...]:
    """All that are possible, the one that holds first. `credentials` are those that it would find."""
    possible = [mode for mode in Billing if mode in capabilities.billing]
    first = setting or _by_credentials(capabilities, credentials)
    return tuple(sorted(possible, key=lambda mode: mode is not first)) if first in possible else tuple(possible)


def _by_credentials(capabilities: Capabilities, credentials: Collection[str]) -> Billing:
    if capabilities.api_credentials & set(credentials):
        return Billing.API
    # Without a key it needs a login of its own, and people log in with subscriptions.
    return Billing.SUBSCRIPTION

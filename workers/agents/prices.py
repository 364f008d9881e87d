"""The prices of an installation: the operator's file, or else the table shipped with runturn."""

from __future__ import annotations

from datetime import UTC, date, datetime

from adapters.prices import PriceTable
from ops.errors import SettingsError
from ops.settings import Settings


def price_table(settings: Settings) -> PriceTable:
    """Read the prices. Raise SettingsError if the file cannot be read or is not a price file."""
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

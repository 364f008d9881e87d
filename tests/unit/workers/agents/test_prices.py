"""Which price table an installation uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.usage import Tokens
from ops.errors import SettingsError
from ops.settings import Settings
from workers.agents.registry import price_table

ONE = '[[price]]\nmodel = "ours"\ninput = 2.0\nsource = "the contract"\nchecked = 2026-11-22\n'


def test_operators_file_replaces_the_table(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(ONE)
    table = price_table(Settings(state_dir=tmp_path, prices_file=file))
    assert table.cost_usd("ours", Tokens(1_000_000)) == 2.0
    assert table.cost_usd("gpt-6-sol", Tokens(1)) is None
    assert price_table(Settings(state_dir=tmp_path)).cost_usd("gpt-6-sol", Tokens(1_000_000)) == 2.0


@pytest.mark.parametrize("text", [None, "[[price]]\n"])
def test_faulty_file_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "prices.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=r"prices\.toml"):
        price_table(Settings(state_dir=tmp_path, prices_file=file))

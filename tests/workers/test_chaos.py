"""Chaos in its short form: whatever is killed, stopped and cut off, no turn is lost, run twice or booked wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.broker import BROKERS
from tests.chaos.form import SHORT
from tests.chaos.performance import perform
from tests.chaos.report import show
from tests.chaos.stage import OpenBroker
from tests.needs import need
from tests.ssh.links import need_links

SEED = 20261121


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "open_broker"), list(BROKERS.items()))
def test_no_storm_costs_a_turn_or_a_token(tmp_path: Path, name: str, open_broker: OpenBroker) -> None:
    need("sshd")
    need_links()
    report = perform(SHORT, tmp_path, name, open_broker, SEED)
    show([report], Console(width=120))
    assert report.faults == []

"""Chaos in its short form: whatever is killed, stopped and cut off, no turn is lost, run twice or booked wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.support.needs import need
from tests.support.ssh.links import need_links
from tests.tools.chaos.broker import BROKERS
from tests.tools.chaos.form import SHORT
from tests.tools.chaos.performance import perform
from tests.tools.chaos.report import show
from tests.tools.chaos.stage import OpenBroker

SEED = 20261121


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "open_broker"), list(BROKERS.items()))
def test_no_storm_costs_a_turn_or_a_token(tmp_path: Path, name: str, open_broker: OpenBroker) -> None:
    need("sshd")
    need_links()
    report = perform(SHORT, tmp_path, name, open_broker, SEED)
    show([report], Console(width=120))
    assert report.faults == []

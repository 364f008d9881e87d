"""The embedded broker's socket."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workers.brokers.embedded import EmbeddedBroker
from workers.errors import BrokerUnavailable


def test_long_state_directory_gets_a_socket_that_every_command_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100) / "broker"
    broker = EmbeddedBroker(deep)
    assert broker.ensure()
    try:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        again = EmbeddedBroker(deep)
        assert again.running()
        assert not again.ensure()
        assert broker.socket.parent.stat().st_mode & 0o077 == 0
    finally:
        assert broker.stop()
    assert not broker.running()


def test_socket_in_a_strangers_directory_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = EmbeddedBroker(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(BrokerUnavailable, match="belongs to another user"):
        broker.running()

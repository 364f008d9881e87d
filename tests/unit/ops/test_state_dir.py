"""The state directory."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ops.errors import SettingsError
from ops.ledger import Ledger
from ops.settings.state_dir import StateDir


def test_everything_is_made_for_its_owner_only(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "deep" / "state")
    for directory in (state.root, state.spool, state.broker, state.logs):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert StateDir.open(state.root) == state
    with Ledger.open(state.ledger_url):
        assert (state.root / "ledger.sqlite3").exists()
    assert sorted(path.name for path in state.root.iterdir() if path.is_dir()) == ["broker", "logs", "spool"]


def test_directory_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError) as caught:
        StateDir.open(tmp_path / "file" / "state")
    assert caught.value.field == "state_dir"
    for words in (f"{tmp_path}/file/state cannot be written", "set RUNTURN_STATE_DIR to a directory of your own"):
        assert words in str(caught.value)


def test_directory_that_does_not_take_files_is_refused() -> None:
    """Not even from root."""
    with pytest.raises(SettingsError, match="cannot be written"):
        StateDir.open(Path("/proc/self"))


def test_directory_that_others_can_write_in_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SettingsError, match=r"is writable by other users \(run: chmod 700"):
        StateDir.open(tmp_path)


def test_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(SettingsError, match=f"belongs to user {owner}"):
        StateDir.open(tmp_path)

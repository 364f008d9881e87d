"""Secrets by file: which files count, what beats what, and what is said of a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.errors import SettingsError
from ops.settings import load_settings, secret_files


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory, and no other configuration anywhere."""
    for name in ("RUNTURN_CONFIG", "RUNTURN_STATE_DIR", "RUNTURN_METRICS_PORT", "RUNTURN_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    directory = tmp_path / "secrets"
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNTURN_SECRETS_DIR", str(directory))
    return directory


def test_a_file_is_the_setting_of_its_name_and_logs_hide_it(secrets: Path) -> None:
    (secrets / "runturn_broker_url").write_text("redis://:pa55word@valkey:6379/0\n")
    settings = load_settings()
    assert settings.broker_url is not None
    assert settings.broker_url.get_secret_value() == "redis://:pa55word@valkey:6379/0"
    assert settings.secrets["RUNTURN_BROKER_URL"] == "redis://:pa55word@valkey:6379/0"
    assert "pa55word" not in repr(settings)


def test_environment_beats_the_secret_and_the_secret_beats_the_configuration(
    secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runturn.toml").write_text('broker_url = "redis://toml"\nledger_url = "sqlite:////toml"\n')
    (secrets / "runturn_broker_url").write_text("redis://file")
    (secrets / "runturn_ledger_url").write_text("")  # empty: as if it were not there
    monkeypatch.setenv("RUNTURN_RESULT_URL", "redis://environment")
    (secrets / "runturn_result_url").write_text("redis://file")
    settings = load_settings()
    urls = (settings.broker_url, settings.result_url, settings.ledger_url)
    assert [url and url.get_secret_value() for url in urls] == [
        "redis://file",
        "redis://environment",
        "sqlite:////toml",
    ]


def test_a_misspelt_secret_is_refused_by_its_name(secrets: Path) -> None:
    (secrets / "runturn_brokerurl").write_text("redis://file")
    with pytest.raises(SettingsError, match=r"RUNTURN_BROKERURL.*no such setting"):
        load_settings()


def test_a_directory_that_is_not_there_is_named(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_SECRETS_DIR", str(secrets / "gone"))
    with pytest.raises(SettingsError, match=r"gone.*No such file or directory"):
        load_settings()


def test_variable_that_nobody_would_take_for_a_secret_is_refused(secrets: Path) -> None:
    (secrets / "MY_LOGIN").write_text("correct horse battery staple")
    with pytest.raises(SettingsError, match=r"MY_LOGIN: its name does not mark it as a secret; end it in"):
        secret_files.variables({"RUNTURN_SECRETS_DIR": str(secrets)})


def test_files_in_capitals_are_variables_unless_the_environment_has_them(secrets: Path) -> None:
    for name, text in {
        "ANTHROPIC_API_KEY": "sk-ant-from-a-file\n",
        "CLAUDE_CODE_OAUTH_TOKEN": "",
        "GITHUB_TOKEN": "of the file",
        "RUNTURN_BROKER_URL": "redis://file",
        "runturn_ledger_url": "sqlite:////file",
        "ssh_client_key": "no variable",
    }.items():
        (secrets / name).write_text(text)
    environ = {"RUNTURN_SECRETS_DIR": str(secrets), "GITHUB_TOKEN": "of the environment"}
    assert secret_files.variables(environ) == {"ANTHROPIC_API_KEY": "sk-ant-from-a-file"}
    assert secret_files.variables({}) == {}


def test_a_secret_that_cannot_be_read_is_named(secrets: Path) -> None:
    (secrets / "runturn_broker_url").mkdir()
    with pytest.raises(SettingsError, match=r"runturn_broker_url.*Is a directory"):
        load_settings()

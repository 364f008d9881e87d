"""What programs make of the files behind compose.yaml, as far as that needs no Docker daemon; CI has none."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from ops.settings import PREFIX, Settings, load_settings, secret_files
from tests.support.needs import need
from tests.support.places import ROOT
from tests.unit.deployment.test_compose import COMPOSE, SERVICES, secrets


def test_secrets_come_from_files_which_one_command_makes(tmp_path: Path) -> None:
    made = _make_secrets(tmp_path, ANTHROPIC_API_KEY="sk-ant-of-a-test")
    assert {file.name for file in made.iterdir()} == COMPOSE["secrets"].keys()
    assert {f"./secrets/{name}" for name in COMPOSE["secrets"]} == {
        secret["file"] for secret in COMPOSE["secrets"].values()
    }
    assert set().union(*map(secrets, SERVICES)) == COMPOSE["secrets"].keys()
    assert (made / "anthropic_api_key").read_text() == "sk-ant-of-a-test"
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in made.iterdir()} == {0o644}
    assert _public(made / "ssh_client_key") == (made / "ssh_client_key.pub").read_text().split()[:2]
    before = {file: file.read_bytes() for file in made.iterdir()}
    assert all(before.values())
    _make_secrets(tmp_path)
    assert before == {file: file.read_bytes() for file in made.iterdir()}, "a second run changes nothing"


def test_workers_read_their_settings_and_secrets_from_what_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _make_secrets(tmp_path, ANTHROPIC_API_KEY="sk-ant-of-a-test")
    run_secrets = tmp_path / "run"
    run_secrets.mkdir()
    for secret in SERVICES["worker1"]["secrets"]:
        source, target = (secret, secret) if isinstance(secret, str) else (secret["source"], secret["target"])
        (run_secrets / target).write_bytes((made / source).read_bytes())
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in SERVICES["worker1"]["environment"].items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv(secret_files.DIRECTORY, str(run_secrets))
    monkeypatch.setenv("RUNTURN_CONFIG", str(ROOT / COMPOSE["configs"]["runturn"]["file"]))
    settings: Settings = load_settings()
    assert settings.broker_url is not None and settings.ledger_url is not None
    assert "@valkey:6379" in settings.broker_url.get_secret_value()
    assert "@postgres:5432" in settings.ledger_url.get_secret_value()
    assert settings.metrics_host == "0.0.0.0"
    assert [host.name for host in settings.ssh_hosts] == ["host1"]
    assert secret_files.variables(os.environ)["ANTHROPIC_API_KEY"] == "sk-ant-of-a-test"


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    for file in ("prometheus.yml", "rules.yml"):
        (tmp_path / file).write_text((ROOT / "ops/prometheus" / file).read_text())
    check = [need("promtool"), "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_shell_scripts_are_sound() -> None:
    for script in ("make-secrets", "ssh-host"):
        path = ROOT / "ops/compose" / script
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", str(path)], check=True)


def _public(key: Path) -> list[str]:
    """The public half, from the private one."""
    copy = key.parent.parent / "key"  # ssh-keygen wants one that nobody else can read
    copy.touch(mode=0o600)
    copy.write_bytes(key.read_bytes())
    done = subprocess.run([need("ssh-keygen"), "-y", "-f", copy], check=True, capture_output=True, text=True)
    return done.stdout.split()[:2]


def _make_secrets(root: Path, **environment: str) -> Path:
    """Run the script as if the repository were there; returns the directory that it fills."""
    need("ssh-keygen")
    script = root / "ops/compose/make-secrets"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_bytes((ROOT / "ops/compose/make-secrets").read_bytes())
    subprocess.run(
        ["sh", str(script)], check=True, capture_output=True, env={"PATH": os.environ["PATH"], **environment}
    )
    return root / "secrets"

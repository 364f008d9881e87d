"""The units, as far as systemd checks them without running: it is not the first process here, nor in CI."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest

from ops.settings import PREFIX, RESERVED, Settings, secret_files
from tests.support.needs import need
from tests.support.places import ROOT

UNITS = ROOT / "ops" / "systemd"
WORKER, EXPORTER = "runturn-worker@.service", "runturn-exporter.service"
both = pytest.mark.parametrize("name", [WORKER, EXPORTER])


def settings(name: str) -> dict[str, list[str]]:
    """The section [Service], each key with all its values."""
    found: dict[str, list[str]] = {}
    section = (UNITS / name).read_text().partition("[Service]")[2].partition("[Install]")[0]
    for key, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def installed(name: str, root: Path) -> Path:
    """The unit as an instance, its program one that is there: systemd-analyze looks for it."""
    unit = root / name.replace("@", "@9477")
    unit.write_text((UNITS / name).read_text().replace("/opt/runturn/bin/runturn", "/bin/true"))
    return unit


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze with a /run of its own: it makes a directory there, which most users may not."""
    alone = [
        need("unshare"),
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        'mount -t tmpfs tmpfs /run && exec "$@"',
        "sh",
    ]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        alone = []
        if not os.access("/run/systemd", os.X_OK):
            pytest.skip("without systemd's directory in /run, only who may make a namespace can do this")
    return subprocess.run(
        [*alone, need("systemd-analyze"), *arguments], capture_output=True, text=True, check=False
    )


@both
def test_systemd_finds_no_fault(name: str, tmp_path: Path) -> None:
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(installed(name, tmp_path)))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("name", "most"), [(WORKER, 45), (EXPORTER, 15)])
def test_exposure_is_no_higher_than_the_work_asks_for(name: str, most: int, tmp_path: Path) -> None:
    unit = str(installed(name, tmp_path))
    done = analyze("security", "--offline=true", f"--threshold={most}", "--no-pager", unit)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_a_restart_leaves_agents_alone() -> None:
    worker = settings(WORKER)
    assert worker["KillMode"] == ["process"]
    assert worker["OOMPolicy"] == ["continue"]
    gone_at_a_stop = {"PrivateTmp", "RuntimeDirectory", "DynamicUser", "RemoveIPC"}
    assert not gone_at_a_stop & worker.keys()
    assert int(worker["TimeoutStopSec"][0]) > 5, "a worker leaves within five seconds"


@both
def test_secrets_are_credentials_and_every_variable_is_a_setting(name: str) -> None:
    unit = settings(name)
    variables = [word for line in unit["Environment"] for word in line.split()]
    names = [word.partition("=")[0] for word in variables if word.startswith(PREFIX)]
    known = {PREFIX + field.upper() for field in Settings.model_fields} | RESERVED
    assert set(names) <= known
    assert f"{secret_files.DIRECTORY}=%d" in variables
    for credential in unit["LoadCredential"]:
        secret, _, path = credential.partition(":")
        assert secret.upper() in known or secret.isupper()
        assert path == f"/etc/runturn/secrets/{secret}"


@both
def test_what_an_operator_copies_is_a_unit(name: str) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / name)
    assert parser.sections() == ["Unit", "Service", "Install"]
    assert parser["Install"]["WantedBy"] == "multi-user.target"

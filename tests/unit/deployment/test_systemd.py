"""What the units say."""

from __future__ import annotations

import configparser
import re

import pytest

from ops.settings import PREFIX, RESERVED, Settings, secret_files
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

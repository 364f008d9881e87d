"""The units, as far as systemd checks them without running: it is not the first process here, nor in CI."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import need
from tests.unit.deployment.test_systemd import EXPORTER, UNITS, WORKER, both


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

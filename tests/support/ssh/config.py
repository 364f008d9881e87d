"""The configuration of an sshd for tests: OpenSSH's own limits, keys for a login, and nothing from the machine."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.needs import need

_DEFAULTS = {
    "UsePAM": "no",
    "StrictModes": "no",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "Subsystem": "sftp internal-sftp",
}


def sshd_config(fixed: Iterable[str], own: Sequence[str], user: str, home: Path) -> str:
    """The text of a configuration in which `user` has this home.

    What a test sets itself (`own`) replaces a default but nothing fixed. A SetEnv among it has to set HOME too.
    """
    names = {line.split()[0].lower() for line in own}
    defaults = _DEFAULTS | ({"PerSourcePenalties": "no"} if _penalises() else {})
    kept = [f"{name} {value}" for name, value in defaults.items() if name.lower() not in names]
    # a Match block ends with the file only, and its SetEnv would replace, not extend, one from outside
    ours = f'SetEnv HOME="{home}" TMPDIR="{tempfile.gettempdir()}"'
    borrowed = [] if "setenv" in names else [f"Match User {user}", ours]
    return "".join(f"{line}\n" for line in [*fixed, *kept, *own, *borrowed])


@functools.cache
def _penalises() -> bool:
    """Whether this sshd (from 9.8 on) shuts out an address whose logins fail: all hosts of a test share one."""
    probe = [need("sshd"), "-t", "-f", "/dev/null", "-o", "PerSourcePenalties=no"]
    return b"Bad configuration option" not in subprocess.run(probe, capture_output=True, check=False).stderr

"""Blows that fill the disk of a host's spools. Its turns wait, or go on in the room set aside for them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.stage import Stage

_FULL_S = 20.0
_BLOCK = bytes(4096)


def on_disk(stage: Stage) -> list[Blow]:
    """Return the blows that fill the last host's disk, which is its own."""
    host = stage.hosts[-1]
    ballast = host.spools / ".ballast"

    def fill() -> None:
        assert host.spools.is_mount(), f"{host.spools} is not a disk of its own"
        _fill(ballast)

    blow = Blow(f"the disk of {host.name}'s spools is full", fill, _FULL_S, ballast.unlink)
    return [blow] * stage.form.disk_blows


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(_BLOCK)

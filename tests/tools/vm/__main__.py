"""Run turns on a virtual machine with systemd: the kernel keeps their limits, power is cut. Takes ten minutes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.tools.vm.image import USERS, Image, build
from tests.tools.vm.machine import VirtualMachine
from tests.tools.vm.scenes import SCENES, fleet, nothing_left

_FOLDER = Path(".vm")
_PROGRAMS = ("mmdebstrap", "mke2fs", "qemu-system-x86_64", "ssh", "ssh-keygen")


def main() -> int:
    """Run the scenes; return 0 if all passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.vm", description=__doc__)
    parser.add_argument("--scene", choices=SCENES, action="append", help="run only this scene; repeatable")
    parser.add_argument("--user", choices=USERS, action="append", help="run only as this user; repeatable")
    parser.add_argument("--keep-image", action="store_true", help="use the image that was built before")
    asked = parser.parse_args()
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        print(f"test-vm: needs root, and these programs: {' '.join(missing) or 'all here'}", file=sys.stderr)
        return 1
    image = Image(_FOLDER.resolve())
    if not (asked.keep_image and image.disk.exists()):
        build(_FOLDER)
    with (
        tempfile.TemporaryDirectory(prefix="runturn-vm-") as folder,
        VirtualMachine(image, Path(folder)) as machine,
    ):
        return _play(machine, Path(folder), asked.user or USERS, asked.scene or list(SCENES))


def _play(machine: VirtualMachine, folder: Path, users: Sequence[str], scenes: Sequence[str]) -> int:
    failed = 0
    for user in users:
        with fleet(machine, user, folder / user) as working:
            for scene in scenes:
                try:
                    said = SCENES[scene](machine, working, user)
                    nothing_left(machine, user)
                except AssertionError as error:
                    failed += 1
                    said = f"FAILED: {error}"
                print(f"{user:5} {scene:7} {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

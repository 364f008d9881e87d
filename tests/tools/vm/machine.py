"""A virtual machine: boots, is logged in to over SSH, and loses its power."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import until
from tests.tools.vm.image import Image

_BOOT_S = 300.0  # without the processor's help, a minute on a quiet machine
_MIB = 2048


class VirtualMachine:
    """A machine with a disk of its own, from an image. Use as a context manager."""

    def __init__(self, image: Image, folder: Path) -> None:
        self.port = free_port()  # of its sshd, on loopback
        self.key = image.key
        self._image = image
        self._disk = folder / "disk"
        self._console = folder / "console"
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(["cp", "--sparse=always", image.disk, self._disk], check=True)

    def __enter__(self) -> VirtualMachine:
        self.boot()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut_power()

    def boot(self) -> None:
        """Start it, and wait until one can log in."""
        with self._console.open("ab") as console:
            self._process = subprocess.Popen(
                [
                    *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"),
                    *("-m", str(_MIB), "-smp", "2", "-nographic", "-no-reboot"),
                    *("-kernel", self._image.kernel, "-initrd", self._image.initrd),
                    *("-append", "root=/dev/vda rw console=ttyS0 panic=-1 quiet"),
                    *("-drive", f"file={self._disk},if=virtio,format=raw"),
                    *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"),
                    *("-device", "virtio-net-pci,netdev=net"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        until(lambda: self.run("root", "systemctl is-system-running --wait >/dev/null; true"), "its boot", _BOOT_S)

    def cut_power(self) -> None:
        """Stop it at once. What it has not written to its disk is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def run(self, user: str, command: str) -> bool:
        """Run a command there; return whether it succeeded."""
        assert self._process is not None
        assert self._process.poll() is None, self._console.read_text(errors="replace")[-2000:]
        options = (
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "ConnectTimeout=30",
        )
        ssh = [shutil.which("ssh") or "ssh", "-q", "-i", str(self.key), "-p", str(self.port)]
        for option in options:
            ssh += ["-o", option]
        return subprocess.run([*ssh, f"{user}@127.0.0.1", command], check=False, timeout=_BOOT_S).returncode == 0

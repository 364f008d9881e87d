"""A disk with Debian, systemd and sshd, which a virtual machine can boot from."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import RECORDINGS

_RELEASE = "bookworm"
_PACKAGES = (
    *("systemd-sysv", "dbus-user-session", "libpam-systemd", "udev", "linux-image-amd64"),
    *("openssh-server", "bubblewrap", "python3-minimal", "procps"),
)
_ACTS = Path(__file__).with_name("acts")
_RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
USERS = ("root", "user")  # systemd keeps what the second one runs after the last logout
# $1 is the new system's root.
_SET_UP = """
set -e
for home in root home/user; do install -D -m 600 {key}.pub "$1/$home/.ssh/authorized_keys"; done
chroot "$1" useradd --shell /bin/sh user
chroot "$1" chown -R user /home/user
mkdir -p "$1/var/lib/systemd/linger"
touch "$1/var/lib/systemd/linger/user"
install -m 755 {acts}/* "$1/usr/local/bin"
install -m 644 {recording} "$1/usr/local/share/recording"
printf '[Match]\\nName=e*\\n[Network]\\nDHCP=yes\\n' >"$1/etc/systemd/network/all.network"
chroot "$1" systemctl enable systemd-networkd
echo /dev/vda / ext4 defaults 0 1 >"$1/etc/fstab"
echo vm >"$1/etc/hostname"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """The parts of an image, in a folder."""

    folder: Path

    @property
    def key(self) -> Path:
        """Return the private key that logs in as each of `USERS`."""
        return self.folder / "key"

    @property
    def disk(self) -> Path:
        """Return the disk, which no machine writes to."""
        return self.folder / "disk"

    @property
    def kernel(self) -> Path:
        """Return the kernel."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Return the kernel's first file system."""
        return self.folder / "initrd"


def build(folder: Path) -> Image:
    """Build an image in `folder`, which is emptied first; takes two minutes, 2 GB and root."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    image, system = Image(folder.resolve()), folder.resolve() / "system"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", image.key], check=True)
    (script := folder.resolve() / "set-up").write_text(
        _SET_UP.format(key=image.key, acts=_ACTS, recording=_RECORDING)
    )
    with (folder / "log").open("wb") as log:
        subprocess.run(
            [
                *("mmdebstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}"),
                *(f"--customize-hook=sh '{script}' \"$1\"", "--format=directory", _RELEASE, str(system)),
            ],
            check=True,
            stdout=log,
            stderr=log,
        )
    for part, found in ((image.kernel, "vmlinuz-*"), (image.initrd, "initrd.img-*")):
        shutil.copy(next((system / "boot").glob(found)), part)
    with image.disk.open("wb") as disk:
        disk.truncate(3 * 2**30)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", system, image.disk], check=True)
    shutil.rmtree(system)
    return image

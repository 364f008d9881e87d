"""Keys as OpenSSH makes and names them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.needs import need


def new_key(path: Path, kind: str = "ed25519") -> Path:
    """Make a key pair at `path` and `path.pub`, in place of any that is there."""
    path.unlink(missing_ok=True)
    size = ["-b", "2048"] if kind == "rsa" else []  # a longer one takes seconds
    _keygen("-q", "-t", kind, *size, "-N", "", "-C", "test", "-f", str(path))
    return path


def public(key: Path) -> str:
    """The public half of a key: its kind and its data, without the comment."""
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def fingerprint(key: Path) -> str:
    """A key's fingerprint: `SHA256:...`."""
    return _keygen("-l", "-f", str(key)).split()[1]


def sign(authority: Path, key: Path, user: str) -> Path:
    """Let an authority vouch that a key is the user's; return the path of the certificate."""
    _keygen("-q", "-s", str(authority), "-I", f"test of {user}", "-n", user, f"{key}.pub")
    return Path(f"{key}-cert.pub")


def _keygen(*args: str) -> str:
    done = subprocess.run([need("ssh-keygen"), *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ssh-keygen {' '.join(args)}: {done.stderr}")
    return done.stdout

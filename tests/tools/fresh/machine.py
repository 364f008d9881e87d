"""A bare Debian machine with Python, make and CA certificates, and its users."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ENTER = Path(__file__).with_name("enter.sh")
_BARE = "python3,make,ca-certificates"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USER_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
# How this machine reaches the package registries; a bare one in the same network has to do likewise.
_NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "NPM_CONFIG_REGISTRY"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
_SYSTEM_ACCOUNTS_TO = 799  # Debian's own setting is 999, and the numbers are given away from the top
_CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, slots=True)
class Person:
    """A user of a machine."""

    name: str
    home: str
    umask: str = "022"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a login without a terminal."""
        path = _SYSTEM_PATH if self.name == "root" else _USER_PATH
        names = {"USER": self.name, "LOGNAME": self.name, "HOME": self.home, "SHELL": "/bin/sh", "PATH": path}
        return names | {name: os.environ[name] for name in _NETWORK if name in os.environ}


ROOT = Person("root", "/root")


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of a command on a machine."""

    code: int
    output: str
    left: tuple[str, ...]  # processes and temporary files that it left behind


class Machine:
    """A machine unpacked from a tarball, until `remove`. Only root can create one."""

    def __init__(self, tarball: Path, root: Path) -> None:
        self._root = root
        if root.exists():  # of a run that was killed
            self.remove()
        root.mkdir()
        subprocess.run(["tar", "-xf", tarball, "-C", root, "--exclude=./dev/*"], check=True)
        # What Debian's installer writes, and a bare tarball lacks.
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 fresh\n::1 localhost ip6-localhost\n")
        (root / "etc/hostname").write_text("fresh\n")
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        shutil.copy(Path("/") / _CERTIFICATES, root / _CERTIFICATES)
        (root / "root").chmod(0o700)
        # To the kernel, accounts are numbers: those that tests make here are to be none that tests made outside.
        with (root / "etc/login.defs").open("a") as settings:
            settings.write(f"SYS_UID_MAX {_SYSTEM_ACCOUNTS_TO}\nSYS_GID_MAX {_SYSTEM_ACCOUNTS_TO}\n")

    def add(self, name: str) -> Person:
        """Create an account."""
        done = self.run(ROOT, ["useradd", "--create-home", "--shell", "/bin/sh", name])
        if done.code:
            raise RuntimeError(f"cannot create the account {name}: {done.output}")
        return Person(name, f"/home/{name}")

    def unpack(self, archive: bytes, person: Person, folder: str) -> None:
        """Unpack sources as this person would: with their umask, owned by them."""
        command = 'mkdir -p "$1" && tar -x -C "$1" --no-same-permissions'
        done = self.run(person, ["sh", "-c", command, "sh", folder], given=archive)
        if done.code:
            raise RuntimeError(f"cannot unpack the sources in {folder}: {done.output}")

    def run(
        self,
        person: Person,
        command: Sequence[str],
        folder: str = "/",
        environment: Mapping[str, str] = {},
        log: Path | None = None,
        given: bytes = b"",
    ) -> Run:
        """Run a command as a person, in a folder, in separate process and mount namespaces.

        Also append the output to `log`. Processes left when the command exits are killed.
        """
        pairs = [f"{name}={value}" for name, value in {**person.environment, **environment}.items()]
        shell = ["sh", "-c", 'umask "$1"; cd "$2"; shift 2; exec "$@"', "sh", person.umask, folder]
        login = ["setpriv", f"--reuid={person.name}", f"--regid={person.name}", "--init-groups", "env", "-i"]
        ends_with_us = ["setpriv", "--pdeathsig=KILL"]
        namespaces = [*ends_with_us, "unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child"]
        with tempfile.NamedTemporaryFile("r") as left, (log or Path(os.devnull)).open("a") as noted:
            argv = [*namespaces, str(_ENTER), str(self._root), left.name, *login, *pairs, *shell, *command]
            output = []
            with subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            ) as process:
                assert process.stdin
                assert process.stdout
                process.stdin.write(given)
                process.stdin.close()
                for line in process.stdout:
                    output.append(line.decode(errors="replace"))
                    noted.write(output[-1])
                    noted.flush()
            return Run(process.returncode, "".join(output), tuple(left.read().splitlines()))

    def remove(self) -> None:
        """Delete its files."""
        shutil.rmtree(self._root)


def tarball(release: str, folder: Path) -> Path:
    """Return the bare root file system of a Debian release, created once and kept in the folder."""
    made = folder / f"{release}.tar"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        new = made.with_suffix(".new.tar")
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_BARE}", release, new], check=True
        )
        new.rename(made)
    return made

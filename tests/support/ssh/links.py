"""Links that can be cut: a network namespace, and the only cable that leads to it."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.support.needs import missing, need, need_root

_NEAR, _FAR = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
_NOBODY = (
    "02:00:00:00:00:ff"  # no card at either end has this address: what is sent to it gets lost without a word
)
_NET_ADMIN, _SYS_ADMIN = 12, 21  # bits of a capability set, from linux/capability.h


class Link:
    """A network namespace behind a cable: `address` is inside, `near_address` is this side of the cable."""

    def __init__(self) -> None:
        # A namespace lives as long as a process is in it, and this one lives as long as its stdin is open:
        # it ends with the tests, even if they are killed.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo inside && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._device = ""
        if not _first_line(self._holder):
            raise OSError(f"no network namespace: {self._holder.communicate()[1].decode().strip()}")
        try:
            number = self._plug_in()
            network = ipaddress.IPv4Address("10.213.0.0") + 4 * number
            self.near_address, self.address = str(network + 1), str(network + 2)
            _ip(f"address add {self.near_address}/30 dev {self._device}", f"link set {self._device} up")
            self._ip(f"address add {self.address}/30 dev eth0", "link set eth0 up", "link set lo up")
            self.mend()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a program inside; `options` are those of `subprocess.Popen`."""
        return subprocess.Popen([*self._enter, *argv], **options)

    def cut(self) -> None:
        """From now on nothing arrives at either end, and nobody is told."""
        self._point_at(_NOBODY, _NOBODY)

    def mend(self) -> None:
        """Let everything through again."""
        self._point_at(_FAR, _NEAR)

    def close(self) -> None:
        """Pull the cable, and end everything that runs inside."""
        if self._device:
            _ip(f"link delete {self._device}")
            self._device = ""
        for process in self._inside():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._holder.communicate()

    @staticmethod
    def available() -> str | None:
        """Why there can be no link here, or None when there can."""
        return _obstacle()

    @property
    def _enter(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net")

    def _plug_in(self) -> int:
        """Lay the cable, and return its number. The kernel sees to it that no two have the same name."""
        while True:
            number = secrets.randbelow(1 << 14)  # so many networks of four addresses are in 10.213.0.0/16
            device = f"rt-link-{number}"
            try:
                _ip(
                    f"link add {device} address {_NEAR} type veth"
                    f" peer name eth0 address {_FAR} netns {self._holder.pid}"
                )
            except FileExistsError:
                continue
            self._device = device
            return number

    def _point_at(self, far: str, near: str) -> None:
        """Tell each end to which card the other's address belongs."""
        _ip(f"neighbour replace {self.address} lladdr {far} dev {self._device} nud permanent")
        self._ip(f"neighbour replace {self.near_address} lladdr {near} dev eth0 nud permanent")

    def _ip(self, *commands: str) -> None:
        _ip(*commands, enter=self._enter)

    def _inside(self) -> list[psutil.Process]:
        namespace = _namespace(self._holder.pid)
        if namespace in (None, _namespace(os.getpid())):
            return []  # the holder never got into a namespace of its own
        return [process for process in psutil.process_iter() if _namespace(process.pid) == namespace]


def need_links() -> None:
    """Without links, a test skips on a laptop and fails in CI: cut ones are what turns have to survive."""
    need_root()
    need("ip")
    if reason := _obstacle():
        missing(reason)


def _forbidden() -> str | None:
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    if not all(capabilities >> bit & 1 for bit in (_NET_ADMIN, _SYS_ADMIN)):
        return "this container may not make network namespaces: it lacks CAP_NET_ADMIN or CAP_SYS_ADMIN"
    return None


@functools.cache
def _obstacle() -> str | None:
    if reason := _forbidden():
        return reason
    try:
        Link().close()
    except OSError as error:
        return f"no link can be made here: {error}"
    return None


def _ip(*commands: str, enter: Sequence[str] = ()) -> None:
    done = subprocess.run(
        [*enter, "ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True, check=False
    )
    if "File exists" in done.stderr:
        raise FileExistsError(done.stderr)
    if done.returncode:
        raise OSError(f"ip {'; '.join(commands)}: {done.stderr.strip()}")


def _namespace(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    return None


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    return process.stdout.readline()

"""Removal of everything that a run of the tests, or of `tests.tools.agents`, leaves behind, however it ends.

The run is a grandchild of the process that was called. Between the two, the keeper adopts every orphan below it,
even processes of other accounts; so everything still below it after pytest has exited was left by this run. A run
that leaves anything fails. Other runs on the same machine are ignored.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Final

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_REQUESTS: Final = (signal.SIGTERM, signal.SIGHUP)
INTERRUPTED: Final = 2  # pytest.ExitCode
_PATIENCE_S: Final = 60  # for the fixtures of a run that was told to stop
_GRACE_S: Final = 10.0  # for what ends by itself after the last test
_OURS: Final = ("rt-", "runturn-")  # what fixtures call their folders; agents leave other things lying
_SOCKETS: Final = Path(f"/tmp/runturn-{os.getuid()}")  # of embedded brokers with a long path
_CODEX: Final = Path(f"/tmp/codex-daemon-{os.getuid()}")  # it makes that on hosts, and leaves it empty


def run_alone(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> int:
    """Run a program with `folder` as its temporary directory, and remove everything it leaves; return its status.

    SIGINT must end the program with the status `INTERRUPTED`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches pytest as well
    signal.pthread_sigmask(signal.SIG_BLOCK, _REQUESTS)  # until there are handlers: none may be lost
    claim_keeper = os.fork()
    if claim_keeper == 0:
        os._exit(_keep(command, environment, folder))
    for number in _REQUESTS:
        signal.signal(number, lambda *_: os.kill(claim_keeper, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _REQUESTS)
    return os.waitstatus_to_exitcode(os.waitpid(claim_keeper, 0)[1])


def _keep(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> int:
    before = {place for place in (_SOCKETS, _CODEX) if place.exists()}
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))  # whoever has called is killed
    process = subprocess.Popen(command, env=environment, umask=0o022, preexec_fn=_heed_signals)  # noqa: PLW1509
    signal.signal(signal.SIGALRM, lambda *_: process.kill())

    def stop(*_: object) -> None:
        process.send_signal(signal.SIGINT)  # TERM would end pytest as it stands; this one it knows
        signal.alarm(_PATIENCE_S)

    for number in _REQUESTS:
        signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _REQUESTS)
    status = _await(process)
    signal.alarm(0)
    try:
        left = [] if status < 0 or status == INTERRUPTED else [*_processes(), *_files(folder)]
    finally:
        _remove(folder, before)
    for what in left:
        print(f"the tests have left {what}", file=sys.stderr, flush=True)
    return (status if status >= 0 else 128 - status) or int(bool(left))


def _heed_signals() -> None:
    """Reset the signals that a shell ignores in background jobs, and nohup in its program."""
    for number in (signal.SIGINT, signal.SIGQUIT, *_REQUESTS):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _await(process: subprocess.Popen[bytes]) -> int:
    """Reap all children until this process exits; return its status."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def _processes() -> list[str]:
    """Describe the processes that do not exit by themselves."""
    deadline = time.monotonic() + _GRACE_S
    while (found := _below()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [_description(process) for process in found]


def _below() -> list[psutil.Process]:
    """Return the descendants that still run, after reaping those that have exited."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return psutil.Process().children(recursive=True)


def _description(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        ports = [str(end.laddr.port) for end in process.net_connections() if end.status == psutil.CONN_LISTEN]
        listens = f", which listens on {', '.join(ports)}" if ports else ""
        return f"process {process.pid}: {' '.join(process.cmdline())[:150]}{listens}"
    return f"process {process.pid}"


def _files(folder: Path) -> list[str]:
    return [f"the folder {path.name}" for path in folder.iterdir() if path.name.startswith(_OURS)]


def _remove(folder: Path, before: Set[Path]) -> None:
    """Kill and remove everything except the places in /tmp that existed before."""
    deadline = time.monotonic() + _PATIENCE_S
    while (found := _below()) and time.monotonic() < deadline:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.02)
    _unmount(folder)
    _open_up(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        print(f"the tests have left {folder}, and it cannot be removed", file=sys.stderr)
    _remove_sockets(_SOCKETS in before)
    if _CODEX not in before:
        with contextlib.suppress(OSError):
            _CODEX.rmdir()
    if os.geteuid() == 0:
        from tests.support.ssh.accounts import clear  # noqa: PLC0415  # with all that it imports, pytest would start later

        clear()


def _unmount(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if line.split(" ")[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", line.split(" ")[1]], check=False)


def _open_up(folder: Path) -> None:
    """Make inaccessible directories removable."""
    for place, folders, _ in os.walk(folder):
        for inner in (Path(place, name) for name in folders):  # before the walk goes there
            with contextlib.suppress(OSError):
                if not inner.is_symlink() and not os.access(inner, os.R_OK | os.W_OK | os.X_OK):
                    inner.chmod(0o700)


def _remove_sockets(had: bool) -> None:
    """Remove sockets of killed brokers, and their directory if this run created it and no other run uses it."""
    listening = Path("/proc/net/unix").read_text()
    for path in _SOCKETS.glob("*.sock"):
        if f" {path}\n" not in listening:
            path.unlink(missing_ok=True)
    if not had:
        with contextlib.suppress(OSError):
            _SOCKETS.rmdir()

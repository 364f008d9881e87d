"""The processes of an sshd: one that listens, and one or two for each connection."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil

from tests.support.waiting import until


def of(listener: int) -> list[psutil.Process]:
    """The processes that serve a connection, one each."""
    return [child for child in psutil.Process(listener).children() if _is_alive(child)]


def parts(sessions: list[psutil.Process]) -> list[psutil.Process]:
    """The sessions with their unprivileged halves, and without what the clients run."""
    halves = []
    for session in sessions:
        with contextlib.suppress(psutil.NoSuchProcess):
            halves += [child for child in session.children() if child.name().startswith("sshd")]
    return [*sessions, *halves]


def connections(listener: int, port: int) -> int:
    """The number of established connections to a port, in the network namespace where the listener lives."""
    table = Path(f"/proc/{listener}/net/tcp").read_text().splitlines()[1:]  # psutil looks at the tests' own only
    return sum(
        local.endswith(f":{port:04X}") and state == "01" for _, local, _, state, *_ in map(str.split, table)
    )


def tie(listener: int, pipe: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a shell that kills the listener when the tests end in a way that leaves them no time to do it.

    The tests are this process, or whoever holds the named pipe open.
    """
    with pipe.open("rb") if pipe else contextlib.nullcontext(subprocess.PIPE) as end:
        return subprocess.Popen(
            ["sh", "-c", 'read -r _; kill -KILL "$1"', "tie", str(listener)],
            stdin=end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def stop_all(listener: int) -> list[psutil.Process]:
    """Stop the listener, then, since no more come up, its sessions; return all of them."""
    os.kill(listener, signal.SIGSTOP)
    process = psutil.Process(listener)
    until(lambda: process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE), "a listener that has stopped")
    stopped = parts(of(listener))
    for part in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            part.suspend()
    return [process, *stopped]


def resume_all(listener: int) -> None:
    """Let the listener and its sessions go on."""
    for process in [psutil.Process(listener), *parts(of(listener))]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def kill(processes: list[psutil.Process]) -> None:
    """Kill the processes, and wait until they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: not any(map(_is_alive, processes)), "the end of killed processes")


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False

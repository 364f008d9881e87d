"""Processes on this machine, found by the environment that all processes of a turn inherit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.waiting import until, words_of


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as /proc shows it; psutil takes ten times as long for hundreds of them."""

    pid: int
    command: str  # each word with a NUL at its end
    variables: str  # NAME=value, likewise

    def __str__(self) -> str:
        return f"{self.pid} {self.command.replace(chr(0), ' ')[:100]}"

    def carries(self, mark: str) -> bool:
        """Whether a variable begins like this; a host's search for the processes of a turn has its mark, too."""
        return f"\0{mark}" in f"\0{self.variables}" and not self.command.startswith("grep\0-ls")


def look() -> Iterator[Seen]:
    """Yield all processes that this one may inspect, except itself, zombies and kernel threads."""
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # a Path for each takes longer
        pid = int(name)
        with contextlib.suppress(OSError):
            command = _read(pid, "cmdline")
            if command and pid != os.getpid():
                yield Seen(pid, command, _read(pid, "environ"))


def of_turns(spool_root: Path) -> list[psutil.Process]:
    """Return all processes of turns below this spool root: agents and their descendants."""
    return _found(lambda each: each.carries(f"RUNTURN_SPOOL={spool_root}/"))


def until_at_rest(spool_root: Path, spool_id: str = "") -> None:
    """Wait until nothing of its turns runs, or of one attempt. A turn is told to be over a moment before."""
    ours = spool_root / spool_id if spool_id else f"{spool_root}/"

    def running() -> list[psutil.Process]:
        return _found(lambda each: each.carries(f"RUNTURN_SPOOL={ours}") or f"\0{ours}" in f"\0{each.command}")

    until(lambda: not running(), "the end of the turns' shells")


def end_turns(spool_root: Path) -> None:
    """Kill the remaining processes of turns, ignoring those that exit first."""
    for process in of_turns(spool_root):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def of_turn(spool: Path) -> list[psutil.Process]:
    """Return the processes of one attempt."""
    return _found(lambda each: each.carries(f"RUNTURN_SPOOL={spool}\0"))


def agents(spool_root: Path) -> set[int]:
    """Return the pids of the agents, or of what contains them, as recorded by their supervisors."""
    return {int(words[0]) for file in spool_root.glob("*/agent") if (words := words_of(file))}


def agent_of(spool: Path) -> int:
    """Return the pid of a turn's agent, outside of what contains it."""
    pid = signed(spool, "agent")
    return _first_child(_first_child(pid)) if "contained" in words_of(spool / "agent") else pid


def signed(spool: Path, name: str) -> int:
    """Wait for a turn's agent, supervisor or watcher to record its pid; return it. They start concurrently."""
    return int(until(lambda: words_of(spool / name), f"the {name} to sign in {spool}")[0])


def gone(process: psutil.Process) -> bool:
    """Return True if the process has exited, even if it is not reaped yet."""
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def gone_pid(pid: int) -> bool:
    """Return True if the process with this pid has exited."""
    try:
        return gone(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def describe(processes: list[psutil.Process]) -> str:
    """Describe processes for an assertion's message."""
    return "; ".join(f"{process.pid} {command_of(process)[:80] or 'gone'}" for process in processes)


def _first_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return int(until(lambda: children.read_text().split(), f"a child of {pid}")[0])


def _found(wanted: Callable[[Seen], bool]) -> list[psutil.Process]:
    found = []
    for each in filter(wanted, look()):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(each.pid))
    return found


def _read(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123  # it is what takes the time
        return file.read().decode(errors="replace")


def command_of(process: psutil.Process) -> str:
    """Return the command line of a process; blank if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def handles(pid: int, number: int) -> bool:
    """Return whether a process catches a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)

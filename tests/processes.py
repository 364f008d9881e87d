"""What runs on this machine, seen through the environment that turns pass on to all their processes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from tests.waiting import until, words_of


def of_turns(spool_root: Path) -> list[psutil.Process]:
    """All processes that belong to a turn below this spool root: agents and their descendants."""
    mark = f"{spool_root}/"
    return [process for process in psutil.process_iter() if _spool(process).startswith(mark)]


def keepers(spool_root: Path) -> list[psutil.Process]:
    """The shells that keep its turns: they live a moment longer than the agents, to put down the end."""
    mark = f"{spool_root}/"
    return [process for process in psutil.process_iter() if any(word.startswith(mark) for word in _words(process))]


def end_turns(spool_root: Path) -> None:
    """Kill what is left of turns; much of it ends by itself meanwhile."""
    for process in of_turns(spool_root):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def of_turn(spool: Path) -> list[psutil.Process]:
    """Those of one attempt."""
    return [process for process in psutil.process_iter() if _spool(process) == str(spool)]


def agents(spool_root: Path) -> set[int]:
    """The pids of the agents themselves, from what their supervisors have noted."""
    return {int(words[0]) for file in spool_root.glob("*/agent") if (words := words_of(file))}


def signed(spool: Path, name: str) -> int:
    """The pid of a turn's agent, supervisor or watcher, as soon as it has signed; they start side by side."""
    return int(until(lambda: words_of(spool / name), f"the {name} to sign in {spool}")[0])


def gone(process: psutil.Process) -> bool:
    """Whether it has ended; whoever is to reap it may take its time."""
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def gone_pid(pid: int) -> bool:
    """The same of a number."""
    try:
        return gone(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def describe(processes: list[psutil.Process]) -> str:
    """For an assertion's message."""
    return "; ".join(f"{process.pid} {_command(process)}" for process in processes)


def _spool(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("RUNTURN_SPOOL", ""))
    except (psutil.Error, OSError):
        return ""


def _command(process: psutil.Process) -> str:
    return " ".join(_words(process))[:80]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return ["gone"]

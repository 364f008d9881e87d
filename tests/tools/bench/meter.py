"""CPU time of a program and of everything it has started, including detached processes.

`python -m tests.tools.bench.meter PROGRAM ...` runs a program, as the parent of all orphans below it. So each
process that exits there is reaped within the tree, and the kernel passes its CPU time up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from types import FrameType

import psutil

_PR_SET_PDEATHSIG = 1  # numbers of prctl(2)
_PR_SET_CHILD_SUBREAPER = 36

PREFIX = (sys.executable, "-m", "tests.tools.bench.meter")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time in seconds, user plus system."""

    program: float  # the process itself
    others: float  # all below it

    @property
    def total(self) -> float:
        """Sum of both."""
        return self.program + self.others

    def __sub__(self, earlier: Cpu) -> Cpu:
        return Cpu(self.program - earlier.program, self.others - earlier.others)


def cpu(meter: int) -> Cpu:
    """Return the CPU time of the tree below a meter so far, without the meter itself.

    Call it while no process starts or exits there; otherwise it may be slightly wrong.
    """
    parent = psutil.Process(meter)
    program = parent.children()[0]
    own = program.cpu_times()
    reaped = parent.cpu_times()
    others = reaped.children_user + reaped.children_system - own.user - own.system
    for process in parent.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            others += sum(process.cpu_times()[:4])  # its own, and of the children that it has reaped
    return Cpu(own.user + own.system, others)


def main(argv: list[str]) -> int:
    """Run a program, reaping all orphans until it exits; return its exit status."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Killed, the meter takes the program along; told to stop, it tells the program.
    program = subprocess.Popen(
        argv,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509 - one thread
    )

    def pass_on(number: int, _: FrameType | None) -> None:
        program.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    while True:
        pid, status = os.wait()
        if pid == program.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The CPU time of a program and of everything it has started, also of what detached itself from it.

`python -m tests.bench.meter PROGRAM ...` runs a program as the parent of all orphans below it. So whatever ends there
is reaped by somebody in its tree, and the kernel hands its CPU time up; nothing is lost and nothing else counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

import psutil

_PR_SET_PDEATHSIG = 1  # numbers of prctl(2)
_PR_SET_CHILD_SUBREAPER = 36

PREFIX = (sys.executable, "-m", "tests.bench.meter")


def cpu_s(meter: int) -> float:
    """Seconds of CPU, user and system, that the tree below a meter has used so far; the meter's own do not count.

    To be asked while nothing starts or ends there, or it may be somewhat wrong.
    """
    parent = psutil.Process(meter)
    reaped = parent.cpu_times()
    seconds = reaped.children_user + reaped.children_system
    for process in parent.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])  # its own, and of the children that it has reaped
    return seconds


def main(argv: list[str]) -> int:
    """Run a program and reap all orphans until it has ended; its exit status."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Killed, the meter takes the program along; told to stop, it tells the program.
    program = subprocess.Popen(argv, preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))

    def pass_on(number: int, _: FrameType | None) -> None:
        program.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    while True:
        pid, status = os.wait()
        if pid == program.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

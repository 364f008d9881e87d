"""SIGTERM and SIGINT to `runturn`, from its first moment on, until a command installs its own handlers.

Importing a worker takes a second or more. So this module imports next to nothing, and its handlers are in place
before anything else is imported.

| | SIGTERM | SIGINT (Ctrl-C) |
|---|---|---|
| services | leave in order, exit 0 | the same |
| others | restore the terminal, die of the signal; turns go on | KeyboardInterrupt, see `workers.cli.main` |
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time

TYPE_CHECKING = False  # importing `typing` takes longer than everything else here

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

SERVICES = ("up", "worker", "exporter", "flower")  # commands that run until they are told to stop

_BOTH = (signal.SIGTERM, signal.SIGINT)
_INTERRUPTED = 130  # as in `workers.cli.exit_codes`
_AGAIN_S = 0.05  # until a signal that Python ignored is repeated
_PATIENCE_S = 4.0  # for what a command does on its way out


class Told(BaseException):
    """The command was told to stop. Not an Exception: nothing may handle it but to clean up."""


def run(command: Callable[[], int], name: str | None) -> int:
    """Run a command until it ends or is told to stop, and return its exit status. `name` is the command's."""
    service = name in SERVICES
    stop = _Stop(0 if service else 128 + signal.SIGTERM)
    sys.unraisablehook = stop.ignored
    status = 0
    try:
        for number in _BOTH if service else (signal.SIGTERM,):
            signal.signal(number, stop)
        status = command()
    except KeyboardInterrupt:  # while the command line is imported; afterwards, it handles this itself
        status = _INTERRUPTED
    except BaseException:
        # Told, or what it became on its way: an import may wrap it, and a cleanup may fail.
        if not stop.told:
            raise
        status = stop.status
    finally:
        # The interpreter's own end takes a while, and it would restore the signals' default: death.
        for number in _BOTH if service else ():
            signal.signal(number, signal.SIG_IGN)
    if stop.told and not service:  # as a shell expects
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    if stop.threaded:
        _leave(status)
    return status


def _leave(status: int) -> NoReturn:
    """Exit, but skip what follows the exit functions: it crashes if a thread starts amid it (CPython 3.11.2)."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # no import for this
            stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it any more
    os._exit(status)


class _Stop:
    """Handler of the signals. The first raises Told in the main thread; later ones do nothing."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.told = False
        self.threaded = False  # a thread of ours may be running

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.told:
            self.told = True
            self._start(self._insist)
            raise Told

    def ignored(self, ignored: sys.UnraisableHookArgs) -> None:
        """Repeat a signal that Python ignored: it came in a finalizer, or a callback, such as those of imports."""
        if ignored.exc_type is Told:
            self.told = False
            self._start(_repeat, signal.SIGTERM)
        elif ignored.exc_type is KeyboardInterrupt:
            self._start(_repeat, signal.SIGINT)
        else:
            sys.__unraisablehook__(ignored)

    def _start(self, function: Callable[..., None], *args: object) -> None:
        """Start a thread. Not a `threading.Thread`: the start of another holds a lock, and may be interrupted."""
        self.threaded = True
        _thread.start_new_thread(function, args)

    def _insist(self) -> None:
        """End the process although it hangs on its way out, or something has caught Told. No turn is lost."""
        time.sleep(_PATIENCE_S)
        os._exit(self.status)


def _repeat(number: int) -> None:
    time.sleep(_AGAIN_S)
    os.kill(os.getpid(), number)

"""The program `runturn`: it handles signals first, and imports the rest, which takes a second, only then."""

from __future__ import annotations

import io
import sys

from workers import stopping


def main() -> None:
    """Run the command line and exit."""
    status = stopping.run(_command_line, next(iter(sys.argv[1:]), None))
    # Ctrl-C during an exec() of text, which creates dataclasses and named tuples, makes `python -m` die of SIGINT
    # on exit although it was caught; the next exec() clears that flag (CPython, Modules/main.c, exit_sigint).
    exec("")  # noqa: S102
    sys.exit(status)


def _command_line() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the terminal may be unable to encode what agents print
    from workers.cli.main import run  # noqa: PLC0415  # see above

    return run(sys.argv[1:])


if __name__ == "__main__":
    main()

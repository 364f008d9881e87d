"""Runs `runturn` for shells as fast as they ask for it: one process has everything imported, and forks.

`python -m tests.docs.forge SOCKET` serves; the program that `forge` writes is its client. What is run is the
command line itself, with the caller's arguments, environment, directory and files.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, Popen

from tests.support.programs import python_program
from tests.support.waiting import until
from workers.cli.main import SECTIONS, run

_CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({socket!r})
    request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(request)
    sys.exit(int(server.recv(16) or 1))
"""


@contextmanager
def forge() -> Iterator[Path]:
    """A directory for the PATH, with `runturn` in it."""
    with tempfile.TemporaryDirectory(prefix="rt-") as directory:  # short: a socket's path has to fit
        programs, place = Path(directory), Path(directory, "socket")
        with Popen([sys.executable, "-m", "tests.docs.forge", str(place)], stdin=PIPE) as server:
            until(lambda: place.exists() or server.poll() is not None, "commands that are ready")
            python_program(programs / "runturn", _CLIENT.format(socket=str(place)), "-ISE")
            yield programs


def serve(place: str) -> None:
    """Run commands until whoever has started this closes its standard input, or is killed."""
    for section in SECTIONS:
        import_module(section.module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{place}.new")
        server.listen()
        os.rename(f"{place}.new", place)  # noqa: PTH104  # whoever sees it can connect
        while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
            client, _ = server.accept()
            with client:
                if os.fork() == 0:
                    _command(client)


def _command(client: socket.socket) -> None:
    """Become one command."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        length, files, *_ = socket.recv_fds(client, 4, 3)
        text = b""
        while len(text) < int.from_bytes(length, "big"):
            text += client.recv(65536)
        arguments, environment, directory = json.loads(text)
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        status = run(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        client.sendall(str(status).encode())
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])

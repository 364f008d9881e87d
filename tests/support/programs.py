"""Programs that tests write for other processes to start."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def python_program(path: Path, text: str, *options: str) -> Path:
    """Write a Python program to run by this interpreter with these options; return its path.

    A `#!` line cannot name an interpreter whose path has a space, so a shell starts it; to Python, the shell's
    lines are a string.
    """
    assert "'" not in sys.executable, "no path with an apostrophe: it would end that string"
    start = " ".join([f'"{sys.executable}"', *map(shlex.quote, options), '"$0" "$@"'])
    path.write_text(f"#!/bin/sh\n'''exec' {start}\n' '''\n{text}")
    path.chmod(0o755)
    return path

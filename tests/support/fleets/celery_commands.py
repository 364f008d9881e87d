"""Runs Celery's own command line, many commands at once: a process that has imported it forks for each."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_FORKS = """
import gc, json, os, sys, traceback
from celery.__main__ import main
import celery.bin.celery, workers.configured_app

gc.freeze()
children = []
for arguments, file in json.load(sys.stdin):
    children.append(os.fork())
    if not children[-1]:
        for stream in (1, 2):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        sys.argv, status = ["celery", *arguments], 1
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # to tear an interpreter down takes ten times as long as a command
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
"""


class Said(NamedTuple):
    """What a command has said."""

    status: int
    text: str


def run_all(environment: Mapping[str, str], commands: Sequence[str], wait_s: float = 1.0) -> dict[str, Said]:
    """Run `celery -A workers.app` with each of these, all at once.

    Those that ask workers show what is answered within `wait_s`, and always take so long.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder, str(number))) for number in range(len(commands))]
        words = [["-A", "workers.app", *_words(each, wait_s)] for each in commands]
        jobs = list(zip(words, files, strict=True))
        done = subprocess.run(
            [sys.executable, "-c", _FORKS],
            input=json.dumps(jobs),
            env={"NO_COLOR": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        statuses = json.loads(done.stdout.splitlines()[-1])
        texts = [Path(file).read_text() for file in files]
    return {each: Said(*said) for each, *said in zip(commands, statuses, texts, strict=True)}


def _words(command: str, wait_s: float) -> list[str]:
    """Its words; one that is JSON comes last."""
    words, brace, document = command.partition("[")
    first, *rest = words.split()
    waits = ["--timeout", str(wait_s)] if first in ("inspect", "control", "status") else []
    return [first, *waits, *rest, *([brace + document] if brace else [])]

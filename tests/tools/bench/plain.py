"""The alternative to runturn: a plain Celery task that runs a command and returns its output."""

from __future__ import annotations

import os
import subprocess

from celery import Celery

QUEUE = "plain"

app = Celery("plain", broker=os.environ.get("PLAIN_BROKER_URL"), backend=os.environ.get("PLAIN_BROKER_URL"))
app.conf.task_default_queue = QUEUE


@app.task(name="plain.run")  # type: ignore[untyped-decorator]  # Celery has no types
def run(argv: list[str], cwd: str) -> str:
    """Run a command; return its output."""
    return subprocess.run(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout

"""A Celery application that has nothing to do with runturn, and shares its broker."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

app = Celery("foreign", broker=os.environ.get("FOREIGN_BROKER"))
app.conf.broker_connection_retry_on_startup = True


@app.task(name="foreign.note")  # type: ignore[untyped-decorator]
def note(name: str) -> None:
    """Put down that it was started, and take its time: until somebody says that it may end."""
    folder = Path(os.environ["FOREIGN_NOTES"])
    with (folder / "started").open("a") as started:
        started.write(f"{name}\n")
    while not (folder / "released").exists():
        time.sleep(0.1)

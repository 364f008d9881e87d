"""An operator's own module, as the setting `include` names it: tasks, and handlers of Celery's signals.

What it hears and does it notes in the file that NOTES names.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Task, current_app, shared_task, signals


def note(*words: object) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps(words) + "\n")


@signals.worker_process_init.connect(weak=False)  # type: ignore[untyped-decorator]
def begun(**_: Any) -> None:
    note("begun")


@signals.task_prerun.connect(weak=False)  # type: ignore[untyped-decorator]
def before(task_id: str, task: Task, **_: Any) -> None:
    note("before", task.name, task_id)


@signals.task_postrun.connect(weak=False)  # type: ignore[untyped-decorator]
def after(task_id: str, task: Task, state: str, **_: Any) -> None:
    note("after", task.name, task_id, state)


@shared_task(name="company.told")  # type: ignore[untyped-decorator]
def told(result: dict[str, Any]) -> str:
    return f"{result['turn_id']} {result['status']}"


@current_app.task(name="company.persist", bind=True, default_retry_delay=0)  # type: ignore[untyped-decorator]
def persist(task: Task, times: int) -> int:
    if task.request.retries < times:
        raise task.retry()
    return int(task.request.retries)


@shared_task(name="company.wait", time_limit=60)  # type: ignore[untyped-decorator]
def wait(file: str) -> None:
    note("waits", file)
    while not Path(file).exists():
        time.sleep(0.05)

"""Roll call of workers and their queues. Leaves out workers of other applications on the same broker."""

from __future__ import annotations

from celery import Celery

NODES = "runturn@"  # prefix of workers' names


def roll_call(app: Celery, timeout_s: float, *, limit: int | None = None) -> dict[str, list[str]]:
    """Return the queues of each worker that answers in time, by its name; `limit` stops after that many."""
    asking = app.control.inspect(timeout=timeout_s, limit=limit, pattern=f"{NODES}*", matcher="glob")
    answers: dict[str, list[dict[str, str]]] = asking.active_queues() or {}
    return {name: [queue["name"] for queue in queues] for name, queues in answers.items()}

"""Which workers answer, and what they consume. Workers of other applications on the same broker are not asked."""

from __future__ import annotations

from celery import Celery

NODES = "runturn@"  # what workers' names begin with


def roll_call(app: Celery, timeout_s: float, *, limit: int | None = None) -> dict[str, list[str]]:
    """Return the queues of each worker that answers in time, by its name; of the first few only, with a limit."""
    asking = app.control.inspect(timeout=timeout_s, limit=limit, pattern=f"{NODES}*", matcher="glob")
    answers: dict[str, list[dict[str, str]]] = asking.active_queues() or {}
    return {name: [queue["name"] for queue in queues] for name, queues in answers.items()}

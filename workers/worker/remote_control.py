"""Commands of Celery's remote control, applied to turns. The ledger has the turns, so commands act there.

Celery's own `revoke` reports a task as revoked at once, even if it keeps running or belongs to another worker.
Here, a task is revoked once its turn has been cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from celery.worker import control, state
from kombu.utils.functional import maybe_list

from workers.app import SESSION_TASK, TASK

_NO_RATE_LIMITS = (
    "turns have no rate limits: limit how many run at a time (host slots, --concurrency), or what they cost "
    "(budgets)"
)
_NO_OTHER_QUEUES = (
    "the setting RUNTURN_QUEUES defines what workers consume; turns come from the ledger, so stop a worker to "
    "keep it from taking more"
)


class Turns(Protocol):
    """Turns, wherever they wait or run."""

    def revoke(self, task_ids: Iterable[str], *, running: bool) -> None:
        """Cancel the turns of these tasks; running ones only if `running`. Returns at once."""
        ...

    def revoke_stamped(self, stamps: Mapping[str, object], *, running: bool) -> None:
        """Do the same for tasks with any of these stamps."""
        ...


def install(turns: Turns) -> None:
    """Install the commands in this process's worker. They are called on the thread of Celery's loop."""

    def revoke(_: Any, task_id: Any, terminate: bool = False, **__: Any) -> dict[str, Any]:
        task_ids = [str(each) for each in maybe_list(task_id) or ()]
        state.revoked.update(task_ids)
        turns.revoke(task_ids, running=bool(terminate))
        flagged = f"tasks {', '.join(task_ids)} flagged as revoked"
        return _reply(flagged, terminate, lambda request: request.id in task_ids)

    def terminate(worker: Any, task_id: Any = None, **_: Any) -> dict[str, Any]:
        return revoke(worker, task_id, terminate=True)

    def by_stamps(_: Any, headers: Any, terminate: bool = False, **__: Any) -> dict[str, Any]:
        stamps = headers if isinstance(headers, Mapping) else dict(each.split("=", 1) for each in headers)
        for name, values in stamps.items():
            known = maybe_list(state.revoked_stamps.get(name)) or ()
            state.revoked_stamps[name] = [*known, *(maybe_list(values) or ())]
        turns.revoke_stamped(stamps, running=bool(terminate))
        flagged = f"headers {dict(stamps)} flagged as revoked"
        return _reply(flagged, terminate, lambda request: has_any(request.stamps, stamps))

    celerys_rate_limit = control.Panel.data["rate_limit"]

    def rate_limit(worker: Any, task_name: Any = None, rate_limit: Any = None, **_: Any) -> Any:
        if task_name in (TASK, SESSION_TASK):
            return {"error": _NO_RATE_LIMITS}
        return celerys_rate_limit(worker, task_name, rate_limit)

    def active_queues(worker: Any) -> list[dict[str, Any]]:
        return [dict(queue.as_dict(recurse=True)) for queue in worker.app.conf.task_queues]

    def refused(_: Any, **__: Any) -> dict[str, Any]:
        return {"error": _NO_OTHER_QUEUES}

    control.Panel.data.update(
        revoke=revoke,
        terminate=terminate,
        revoke_by_stamped_headers=by_stamps,
        rate_limit=rate_limit,
        active_queues=active_queues,
        add_consumer=refused,
        cancel_consumer=refused,
    )


def _reply(flagged: str, terminate: bool, meant: Callable[[Any], bool]) -> dict[str, Any]:
    """Report tasks as revoked, or name those among them (`meant`) that run here and cannot be terminated."""
    at_work = [each for each in list(state.active_requests) if each.type not in (TASK, SESSION_TASK)]
    others = [request.id for request in at_work if terminate and meant(request)]
    if others:
        return {"error": f"tasks {', '.join(sorted(others))} are not turns: their threads cannot be terminated"}
    return {"ok": flagged}


def has_any(stamps: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    """Return whether any of a task's stamps has a wanted value."""
    return any(
        value in (maybe_list(wanted[name]) or ())
        for name, values in stamps.items()
        if name in wanted
        for value in maybe_list(values) or ()
    )

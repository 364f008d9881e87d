"""A worker that dies at one moment of one task: `python -m tests.integration.canvas.mortal`, as `runturn`
otherwise.

The environment says when: `MORTAL=MOMENT/TASK`.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

from celery import Celery, states
from celery.backends.base import Backend

from ops.ledger import Waiter
from ops.ledger.ledger import Queue, Waiters


def _settled(_: Queue, claim: Any, *rest: Any) -> str:
    return str(claim.turn_id)


def _stored(_: Backend, task_id: str, result: object, state: str, *rest: Any, **more: Any) -> str:
    return task_id if state in states.READY_STATES else ""


def _noted(_: Waiters, waiter: Waiter) -> str:
    return waiter.turn_id


def _sent(_: Celery, *rest: Any, **options: Any) -> str:
    return str(options.get("task_id"))


# A call by moment, what it is called with for which turn, and whether the moment is after it.
MOMENTS: dict[str, tuple[type, str, Callable[..., str], bool]] = {
    "before-settle": (Queue, "settle", _settled, False),
    "before-what-follows": (Queue, "settle", _settled, True),
    "before-state": (Backend, "store_result", _stored, False),  # what follows on a success has been sent
    "before-note": (Waiters, "told", _noted, False),
}
# Of what a worker sends, by the id of that.
AFTER_SENDING = {"after-sending": (Celery, "send_task", _sent, True)}


def die(moment: str, turn_id: str) -> None:
    """Have this process die then."""
    place, name, turn_of, after = {**MOMENTS, **AFTER_SENDING}[moment]
    call = getattr(place, name)

    @functools.wraps(call)
    def fatal(*args: Any, **kwargs: Any) -> Any:
        now = turn_of(*args, **kwargs) == turn_id
        done = call(*args, **kwargs) if after or not now else None
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(place, name, fatal)


if __name__ == "__main__":
    from workers.__main__ import main

    die(*os.environ["MORTAL"].split("/"))
    main()

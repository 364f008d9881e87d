"""How what a producer says to a running turn reaches the worker that holds it: Celery's remote control.

It is told to all workers, and only the one that holds the turn replies. So no reply says that none does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import structlog
from celery import Celery
from celery.worker import control
from kombu import pidbox

from workers.live.messages import COMMAND, Reply, Said, decode

log = structlog.get_logger(__name__)


_NOT_HERE = object()


class QuietNode(pidbox.Node):  # type: ignore[misc]  # kombu has no types
    """A mailbox that says nothing where there is nothing to say."""

    def reply(self, data: dict[str, Any], exchange: str, routing_key: str, ticket: str, **kwargs: Any) -> None:
        """Reply, unless the turn is not here."""
        if data[self.hostname] is not _NOT_HERE:
            super().reply(data, exchange, routing_key, ticket, **kwargs)


def listen(app: Celery, hear: Callable[[Said], Reply | None]) -> None:
    """Have this process's worker pass on what producers say. `hear` is called on the thread of Celery's loop."""

    def say(_: Any, **arguments: Any) -> object:
        try:
            reply = hear(decode(arguments))
        except ValueError as error:
            log.warning("what a producer says to a turn is not understood", error=str(error))
            return asdict(Reply(refused=f"{error}; is the producer's runturn of the workers' version?"))
        return _NOT_HERE if reply is None else asdict(reply)

    app.control.mailbox.node_cls = QuietNode
    control.Panel.data[COMMAND] = say

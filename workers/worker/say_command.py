"""Delivery of a producer's message to the worker that holds the turn, over Celery's remote control.

The message goes to all workers, and only the one that holds the turn replies. No reply means that none does.
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
    """A mailbox that can stay silent."""

    def reply(self, data: dict[str, Any], exchange: str, routing_key: str, ticket: str, **kwargs: Any) -> None:
        """Reply unless the turn is not here."""
        if data[self.hostname] is not _NOT_HERE:
            super().reply(data, exchange, routing_key, ticket, **kwargs)


def listen(app: Celery, hear: Callable[[Said], Reply | None]) -> None:
    """Make this process's worker accept producers' messages. `hear` is called on the thread of Celery's loop."""

    def say(_: Any, **arguments: Any) -> object:
        try:
            reply = hear(decode(arguments))
        except ValueError as error:
            log.warning("a producer's message to a turn was not understood", error=str(error))
            return asdict(Reply(refused=f"{error}; do producer and workers run the same version of runturn?"))
        return _NOT_HERE if reply is None else asdict(reply)

    app.control.mailbox.node_cls = QuietNode
    control.Panel.data[COMMAND] = say

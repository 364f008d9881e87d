"""Celery's `Request` as everybody may see it: in events and in Flower, in `inspect`, on the pages of a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.worker.request import Request


class ShownRequest(Request):  # type: ignore[misc]  # Celery has no types
    """Shows what `describe` makes of a task's one argument, whatever its producer would have shown of it.

    Celery's own clients put the repr of all arguments beside these, and `inspect` shows the arguments themselves.
    """

    def __init__(self, message: Any, *, describe: Callable[[object], str], **arguments: Any) -> None:
        super().__init__(message, **arguments)
        self.name = self._type  # a producer can name another one
        self._argsrepr = describe(self.document)
        self._kwargsrepr = "{}"

    @property
    def document(self) -> object:
        """The one argument that a turn's task has; None: there is none, or there are others."""
        args = list(self.args or ())
        return args[0] if len(args) == 1 else None

    def info(self, safe: bool = False) -> dict[str, Any]:
        """What `inspect` tells."""
        told: dict[str, Any] = super().info(safe=True)
        return told

"""Celery's `Request` as everybody may see it: in events and in Flower, in `inspect`, on the pages of a worker."""

from __future__ import annotations

from typing import Any, Protocol

from celery.worker.request import Request

from adapters.arguments import asked


class Shown(Protocol):
    """What monitors see."""

    def named(self, shadow: object, task: str) -> str:
        """Of a task's name, and of the one that its producer would have shown instead."""
        ...

    def described(self, asked: object) -> str:
        """Of a request, or of what was sent in place of one."""
        ...


class ShownRequest(Request):  # type: ignore[misc]  # Celery has no types
    """Shows what `shown` makes of its name and its request, whatever its producer would have shown of them.

    Celery's own clients put the repr of all arguments beside these, and `inspect` shows the arguments themselves.
    """

    def __init__(self, message: Any, *, shown: Shown, **arguments: Any) -> None:
        super().__init__(message, **arguments)
        self.name = shown.named(self.request_dict.get("shadow"), self.type)
        self.asked = asked(self.args or (), self.kwargs or {})
        self._argsrepr = shown.described(self.asked.document)
        self._kwargsrepr = "{}"

    def info(self, safe: bool = False) -> dict[str, Any]:
        """What `inspect` tells."""
        told: dict[str, Any] = super().info(safe=True)
        return told

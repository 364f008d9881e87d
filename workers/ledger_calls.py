"""Ledger calls from the event loop: made in threads, and repeated until the ledger answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import structlog

from ops.errors import LedgerUnavailable

_RETRY_S = 1.0

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger(__name__)


class WorkerStopping(Exception):
    """Raised when the worker is shutting down; the agent keeps running."""


class LedgerCalls:
    """Repeats a call until the ledger answers or the worker shuts down."""

    def __init__(self) -> None:
        self._leaving = asyncio.Event()

    @property
    def leaving(self) -> bool:
        """Return whether the worker is shutting down."""
        return self._leaving.is_set()

    def leave(self) -> None:
        """Stop repeating calls; those that the ledger answers still go through."""
        self._leaving.set()

    async def __call__(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call an idempotent `operation`. Raises WorkerStopping, and its errors except LedgerUnavailable."""
        while True:
            try:
                return await asyncio.to_thread(operation, *args, **kwargs)
            except LedgerUnavailable as error:
                log.warning("the ledger does not answer", error=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _RETRY_S)
                raise WorkerStopping

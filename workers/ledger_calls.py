"""Calls to the ledger from the loop that carries the streams: in threads, and for as long as it takes."""

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
    """The worker was told to leave; the agent goes on."""


class LedgerCalls:
    """Repeats a call until the ledger answers, unless the worker has to leave meanwhile."""

    def __init__(self) -> None:
        self._leaving = asyncio.Event()

    @property
    def leaving(self) -> bool:
        """Whether the worker has to leave."""
        return self._leaving.is_set()

    def leave(self) -> None:
        """Give up waiting; calls that the ledger answers still go through."""
        self._leaving.set()

    async def __call__(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `operation`, which may be repeated. Raises Detached, and what it raises but LedgerUnavailable."""
        while True:
            try:
                return await asyncio.to_thread(operation, *args, **kwargs)
            except LedgerUnavailable as error:
                log.warning("the ledger does not answer", error=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _RETRY_S)
                raise WorkerStopping

"""Backport of the fix for subprocess transports that outlive their event loop (gh-114177).

Before Python 3.11.8 and 3.12.2, collecting one raises "Event loop is closed" in whichever test is running.
"""

from __future__ import annotations

import warnings
from asyncio.base_subprocess import BaseSubprocessTransport
from typing import Any

_delete: Any = BaseSubprocessTransport.__del__  # type: ignore[attr-defined]


def _collect(self: Any, _warn: Any = warnings.warn) -> None:
    if self._loop is not None and not self._loop.is_closed():
        _delete(self, _warn)


BaseSubprocessTransport.__del__ = _collect  # type: ignore[attr-defined]

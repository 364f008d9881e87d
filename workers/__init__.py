"""Celery workers that run coding-agent turns, and clients for producers that queue them.

Exports what producers need, and loads it on first use: a client loads nothing of a worker's.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # `typing` takes long to import, and `runturn` must handle signals soon

if TYPE_CHECKING:
    from adapters.live import Control, ControlRequest, Verdict
    from adapters.protocol.request import TurnRequest
    from adapters.protocol.result import TurnResult
    from adapters.protocol.session_request import SessionRequest
    from adapters.protocol.session_result import SessionResult
    from adapters.protocol.task import Task
    from adapters.toolkit.tool_functions import ToolContext
    from ops.ledger import Ledger
    from workers.app import create_app
    from workers.client.aio import AsyncClient
    from workers.client.signatures import turn_signature, turn_signature_after
    from workers.client.sync import Client

__all__ = [
    "AsyncClient",
    "Client",
    "Control",
    "ControlRequest",
    "Ledger",
    "SessionRequest",
    "SessionResult",
    "Task",
    "ToolContext",
    "TurnRequest",
    "TurnResult",
    "Verdict",
    "create_app",
    "turn_signature",
    "turn_signature_after",
]

_HOMES = {
    "adapters.live": ("Control", "ControlRequest", "Verdict"),
    "adapters.protocol.request": ("TurnRequest",),
    "adapters.protocol.result": ("TurnResult",),
    "adapters.protocol.session_request": ("SessionRequest",),
    "adapters.protocol.session_result": ("SessionResult",),
    "adapters.protocol.task": ("Task",),
    "adapters.toolkit.tool_functions": ("ToolContext",),
    "ops.ledger": ("Ledger",),
    "workers.app": ("create_app",),
    "workers.client.aio": ("AsyncClient",),
    "workers.client.signatures": ("turn_signature", "turn_signature_after"),
    "workers.client.sync": ("Client",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

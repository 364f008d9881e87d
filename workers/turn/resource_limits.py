"""Says which limit on its host's resources a turn exceeded."""

from __future__ import annotations

from adapters import errors
from adapters.errors import TurnError
from adapters.protocol.request import TurnRequest
from remote.spool import Exit
from workers.hosts.inventory import TurnHost


def exceeded(end: Exit | None, host: TurnHost, request: TurnRequest) -> TurnError | None:
    """Return the limit for which the host ended the turn; None: it did not."""
    limits = host.containment(request)
    match end.reason if end is not None else None:
        case "memory":
            limit = "" if limits.max_memory is None else f" ({limits.max_memory // 2**20:,} MiB)"
            return errors.MemoryExceeded(_message(host, "the agent and its tools", "memory", limit))
        case "processes":
            limit = "" if limits.max_processes is None else f" ({limits.max_processes:,})"
            return errors.ProcessesExceeded(_message(host, "the agent and its tools", "processes", limit))
        case "disk":
            limit = "" if limits.max_disk is None else f" ({limits.max_disk // 2**20:,} MiB)"
            return errors.DiskExceeded(_message(host, "the files in the workspace", "disk", limit))
    return None


def _message(host: TurnHost, what: str, limit: str, amount: str) -> str:
    return (
        f"host {host.name}: {what} exceeded max_{limit}{amount}, and the agent was terminated; raise the limit, "
        "or split the task"
    )

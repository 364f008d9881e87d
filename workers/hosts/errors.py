"""Maps errors of `remote` to errors of turns, here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import TypeVar

import structlog

from adapters import errors
from adapters.errors import TurnError
from remote.errors import HostAuthFailed, HostError, HostKeyChanged, LineTooLong, SpawnRefused

T = TypeVar("T")
log = structlog.get_logger(__name__)

_PROGRAM = (
    "command in the agent's own table, RUNTURN_AGENT__COMMAND if it is the default agent, or the host's agents"
)
# By code: the turn's error, and what to do, unless the message says so.
_REFUSALS: dict[str, tuple[type[TurnError], str]] = {
    "workspace_missing": (errors.InvalidWorkspace, "create it, or correct the workspace field"),
    "workspace_not_directory": (errors.InvalidWorkspace, "the workspace field must name a directory"),
    "workspace_not_enterable": (errors.InvalidWorkspace, ""),
    "workspace_not_allowed": (errors.InvalidWorkspace, "choose one below the host's workspace_roots"),
    "git_missing": (errors.InvalidWorkspace, "install it there, or use mounts without collect.patch"),
    "repository_missing": (errors.InvalidWorkspace, "create it, or correct the field worktree.repository"),
    "ref_missing": (errors.InvalidWorkspace, "correct the field worktree.ref"),
    "workspace_full": (errors.SpoolUnwritable, "free some space there"),
    "workspace_unwritable": (
        errors.SpoolUnwritable,
        "make it writable, or set another: RUNTURN_STATE_DIR, or the host's workspaces_dir",
    ),
    "agent_not_found": (errors.AgentNotFound, f"install it there, or set its path: {_PROGRAM}"),
    "agent_not_executable": (errors.AgentNotFound, f"make it executable, or set another path: {_PROGRAM}"),
    "isolation_unavailable": (errors.IsolationUnavailable, ""),
    "workspace_not_isolated": (errors.InvalidWorkspace, "choose another workspace, or no sandbox"),
    "tool_missing": (errors.AgentNotFound, ""),
    "spool_full": (errors.SpoolUnwritable, "free some space there"),
    "spool_unwritable": (
        errors.SpoolUnwritable,
        "make it writable, or set another: RUNTURN_STATE_DIR, or the host's spool_dir",
    ),
}

# What the kernel says where there are too many processes, or too little memory (EAGAIN, ENOSPC, ENOMEM).
_PASSING = re.compile("temporarily unavailable|No space left on device|Cannot allocate memory")


def turn_error(fault: HostError) -> TurnError:
    """Return the turn's error for a fault of its host."""
    if isinstance(fault, SpawnRefused):
        kind, advice = _REFUSALS.get(fault.code, (errors.HostLost, ""))
        if kind is errors.IsolationUnavailable and _PASSING.search(fault.message):
            return kind(str(fault), retry=errors.Retry.BACKOFF)
        return kind(f"{fault}; {advice}" if advice else str(fault))
    if isinstance(fault, HostAuthFailed):
        return errors.HostAuthFailed(str(fault))
    if isinstance(fault, HostKeyChanged):
        return errors.HostKeyChanged(str(fault))
    if isinstance(fault, LineTooLong):
        return errors.PortExit(str(fault), retry=errors.Retry.NEVER)
    return errors.HostUnreachable(str(fault))


async def tolerant(action: Awaitable[T], otherwise: T) -> T:
    """Return the host's answer, or `otherwise` if there is none."""
    try:
        return await action
    except HostError as fault:
        log.warning("host did not answer", error=str(fault))
        return otherwise

"""Maps errors of `remote` to errors of turns, here and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import structlog

from adapters import errors
from adapters.errors import TurnError
from remote.errors import HostAuthFailed, HostError, HostKeyChanged, LineTooLong, SpawnRefused

T = TypeVar("T")
log = structlog.get_logger(__name__)

_REFUSALS: dict[str, type[TurnError]] = {
    "workspace_missing": errors.InvalidWorkspace,
    "workspace_not_directory": errors.InvalidWorkspace,
    "workspace_not_enterable": errors.InvalidWorkspace,
    "workspace_not_allowed": errors.InvalidWorkspace,
    "git_missing": errors.InvalidWorkspace,
    "repository_missing": errors.InvalidWorkspace,
    "ref_missing": errors.InvalidWorkspace,
    "workspace_full": errors.SpoolUnwritable,
    "workspace_unwritable": errors.SpoolUnwritable,
    "agent_not_found": errors.AgentNotFound,
    "agent_not_executable": errors.AgentNotFound,
    "tool_missing": errors.AgentNotFound,
    "spool_full": errors.SpoolUnwritable,
    "spool_unwritable": errors.SpoolUnwritable,
}
_PROGRAM = (
    "command in the agent's own table, RUNTURN_AGENT__COMMAND if it is the default agent, or agents of the host"
)


def turn_error(fault: HostError) -> TurnError:
    """Return the turn's error for a fault of its host."""
    if isinstance(fault, SpawnRefused):
        return _REFUSALS.get(fault.code, errors.HostLost)(_advised(fault))
    if isinstance(fault, HostAuthFailed):
        return errors.HostAuthFailed(str(fault))
    if isinstance(fault, HostKeyChanged):
        return errors.HostKeyChanged(str(fault))
    if isinstance(fault, LineTooLong):
        return errors.PortExit(str(fault), retry=errors.Retry.NEVER)
    return errors.HostUnreachable(str(fault))


def _advised(fault: SpawnRefused) -> str:
    advice = {
        "workspace_missing": "create it, or correct the field workspace",
        "workspace_not_directory": "the field workspace must name a directory",
        "git_missing": "install it there, or bring files without a patch",
        "repository_missing": "create it, or correct the field worktree.repository",
        "ref_missing": "correct the field worktree.ref",
        "workspace_full": "free some space there",
        "workspace_unwritable": "make it writable, or set another: RUNTURN_STATE_DIR, workspaces_dir of the host",
        "workspace_not_allowed": "choose one below the host's workspace_roots",
        "agent_not_found": f"install it there, or set its path: {_PROGRAM}",
        "agent_not_executable": f"make it executable, or set another path: {_PROGRAM}",
        "spool_full": "free some space there",
        "spool_unwritable": "make it writable, or set another: RUNTURN_STATE_DIR, spool_dir of the host",
    }.get(fault.code)
    return f"{fault}; {advice}" if advice else str(fault)


async def tolerant(action: Awaitable[T], otherwise: T) -> T:
    """Return the host's answer, or `otherwise` if there is none."""
    try:
        return await action
    except HostError as fault:
        log.warning("host did not answer", error=str(fault))
        return otherwise

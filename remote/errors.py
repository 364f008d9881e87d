"""Errors of hosts.

HostError
├── HostUnreachable  no channel, or it ended; the turn keeps running until its lease expires
├── HostKeyChanged   its host key is not trusted: changed, revoked, or unknown where it must be known
├── HostAuthFailed   it refused the login
├── SpawnRefused     the host answered, and refuses to start or show this turn
└── LineTooLong      the agent printed a line above the limit
"""

from __future__ import annotations


class HostError(Exception):
    """A host failed."""

    def __init__(self, host: str, message: str) -> None:
        super().__init__(f"host {host}: {message}")
        self.host = host
        self.message = message


class HostUnreachable(HostError):
    """There is no channel to the host. Retrying may help."""


class HostKeyChanged(HostError):
    """The host's key is not trusted. Retrying helps only after an operator has resolved it."""


class HostAuthFailed(HostError):
    """The host refused the login. Retrying at once does not help."""


class SpawnRefused(HostError):
    """The host refused, for the reason in `code`. Retrying does not help until something changes.

    Codes: workspace_missing, workspace_not_directory, workspace_not_enterable, workspace_not_allowed,
    agent_not_found, agent_not_executable, isolation_unavailable,
    spool_full, spool_unwritable, spool_missing, spool_shortened,
    spool_exists, spool_in_use, tool_missing, start_failed, git_missing, repository_missing, ref_missing,
    workspace_full, workspace_unwritable, not_collected.
    """

    def __init__(self, host: str, code: str, detail: str) -> None:
        super().__init__(host, f"{_SENTENCES.get(code, code)}: {detail}")
        self.code = code
        self.detail = detail


class LineTooLong(HostError):
    """The agent printed a line longer than `limit` bytes, starting at byte `offset` of its output."""

    def __init__(self, host: str, offset: int, limit: int) -> None:
        super().__init__(host, f"an output line is longer than {limit} bytes (it begins at byte {offset})")
        self.offset = offset
        self.limit = limit


_SENTENCES = {
    "workspace_missing": "there is no such workspace",
    "workspace_not_directory": "the workspace is not a directory",
    "workspace_not_enterable": "the workspace cannot be entered",
    "workspace_not_allowed": "the workspace is outside the directories that this host allows",
    "agent_not_found": "the agent's program was not found",
    "agent_not_executable": "the agent's program is not executable",
    "spool_full": "the disk that holds the spool is full",
    "spool_unwritable": "the spool cannot be written",
    "spool_missing": "there is no such spool",
    "spool_shortened": "the turn's output is shorter than what was read of it",
    "spool_exists": "the turn has a spool after all: its start was delayed",
    "spool_in_use": "the turn in this spool has not finished",
    "isolation_unavailable": "the host cannot isolate the agent",
    "tool_missing": "a program that every host needs is missing",
    "git_missing": "git is not installed",
    "repository_missing": "there is no such git repository",
    "ref_missing": "the repository has no such commit",
    "workspace_full": "the disk for workspaces is full",
    "workspace_unwritable": "the workspace could not be created or removed",
    "not_collected": "the changes could not be collected",
    "start_failed": "the supervisor could not be started",
}

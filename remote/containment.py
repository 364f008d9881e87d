"""How an agent is contained on its host: its isolation, what it can see, and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapters.command import Command, SessionFiles
from adapters.isolation import Isolation, Network

WRITABLE = ":rw"


@dataclass(frozen=True, slots=True)
class Containment:
    """How an agent is contained. Paths are absolute, or begin with ~/ for the home on the host."""

    isolation: Isolation = Isolation.NONE
    shown: tuple[str, ...] = ()  # paths that a sandbox shows, besides the agent's own
    writable: tuple[str, ...] = ()  # likewise, and the agent may write there
    network: Network = Network.FULL  # of a sandbox
    # Limits of the agent and its tools together.
    max_memory: int | None = None  # bytes
    max_processes: int | None = None
    max_cpus: float | None = None  # cores
    max_disk: int | None = None  # bytes, of the files in the workspace

    @classmethod
    def of(
        cls, isolation: Isolation, sandbox_paths: Sequence[str], network: Network = Network.FULL
    ) -> Containment:
        """Return the containment with these paths for a sandbox, of which `:rw` marks writable ones."""
        writable = tuple(path.removesuffix(WRITABLE) for path in sandbox_paths if path.endswith(WRITABLE))
        shown = tuple(path for path in sandbox_paths if not path.endswith(WRITABLE))
        return cls(isolation, shown, writable, network)

    def variables(self, command: Command) -> Mapping[str, str]:
        """Return the variables that `containment.sh` needs for an agent with this command."""
        return {
            "isolation": self.isolation,
            "network": self.network,
            "cwd": command.cwd,
            "agent_path": command.env.get("PATH", ""),
            "agent_program": command.argv[0],
            "agent_state": "\n".join(command.state),
            "shown_paths": "\n".join(self.shown),
            "max_kibibytes": _word(self.max_memory, 1 / 1024),
            "max_processes": _word(self.max_processes),
            "max_cpu_percent": _word(self.max_cpus, 100),
            "max_disk": _word(self.max_disk, 1 / 1024),
            "writable_paths": "\n".join(self.writable),
            **session_variables(command, command.session_files),
        }


AS_USUAL = Containment()


def _word(limit: float | None, scale: float = 1) -> str:
    return "" if limit is None else str(round(limit * scale))


def session_variables(command: Command, files: SessionFiles | None) -> dict[str, str]:
    """Return the variables that `sessions.sh` needs for session files of an agent with this command."""
    if files is None:
        return {"session_patterns": ""}
    return {
        "session_patterns": " ".join(files.patterns),
        "session_directory": files.directory,
        "session_root": _session_root(files, command.env),
        "session_env": "" if files.root_env in command.unset_env else files.root_env,
        "session_default": files.root_default,
    }


def _session_root(files: SessionFiles, env: Mapping[str, str]) -> str:
    """Return the root if the command's own environment determines it, else an empty string."""
    if root := env.get(files.root_env):
        return root
    return f"{env['HOME']}/{files.root_default}" if "HOME" in env else ""

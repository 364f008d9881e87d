"""Command to run on a host: the seam between an agent's adapter and the code that runs processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FILES = "@RUNTURN_FILES@"  # in an argument: the directory of the command's files on its host


@dataclass(frozen=True, slots=True)
class Signal:
    """One rung of the stop ladder: send `name` to the agent, then wait `grace_s` for it to exit."""

    name: str  # without the SIG prefix: "INT", "TERM", "KILL"
    grace_s: float  # seconds until the next rung


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """Location of an agent's records of one session, and no other, from which a killed turn's usage is read.

    The root is the value of the environment variable `root_env` on the host, else `$HOME/<root_default>`.
    `patterns` are shell globs below that root; they never contain quotes or white space.
    """

    root_env: str
    root_default: str
    patterns: tuple[str, ...]
    directory: str = ""  # below the root: all that the agent keeps, such as its login


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start on a host. The prompt is always `stdin`, never an argument."""

    argv: tuple[str, ...]  # argv[0] is a path or a name looked up in the host's PATH
    cwd: str  # absolute path of the workspace on the host
    stdin: bytes = field(default=b"", repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # added to the host's environment
    forward_env: tuple[str, ...] = ()  # names forwarded from the worker's environment, if set there
    unset_env: tuple[str, ...] = ()  # names removed from the host's environment before the start
    stop: tuple[Signal, ...] = (Signal("TERM", 5.0), Signal("KILL", 5.0))  # stop ladder, first rung first
    session_files: SessionFiles | None = None  # None: the agent keeps no records of usage
    # Small files by name, on the host while the agent runs; arguments refer to them as f"{FILES}/{name}". They may
    # contain secrets. The agent also finds them in "$RUNTURN_SPOOL/files".
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    state: tuple[str, ...] = ()  # what the agent keeps elsewhere below the home on the host
    # True: standard input stays open for lines that follow `stdin`, until the worker closes it.
    live: bool = False

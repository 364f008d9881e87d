"""What to run on a host: the seam between an agent's adapter and the room that runs processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SPOOL = "@RUNTURN_SPOOL@"  # in an argument: the path of the turn's spool on its host


@dataclass(frozen=True, slots=True)
class Signal:
    """One rung of a ladder: send `name` to the agent, then give it `grace_s` to leave."""

    name: str  # without the SIG prefix: "INT", "TERM", "KILL"
    grace_s: float  # seconds until the next rung


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """Where an agent keeps the records of one session, so that a killed turn's usage can be read.

    The root is the value of the environment variable `root_env` on the host, else `$HOME/<root_default>`.
    `patterns` are shell globs below that root; they never hold quotes or white space.
    """

    root_env: str
    root_default: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start on a host. The prompt is always `stdin`, never an argument."""

    argv: tuple[str, ...]  # argv[0] is a path or a name looked up in the host's PATH
    cwd: str  # absolute path of the workspace on the host
    stdin: bytes = field(default=b"", repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # set for the agent, on top of the host's own
    forward_env: tuple[str, ...] = ()  # names the worker forwards from its own environment, when set there
    unset_env: tuple[str, ...] = ()  # names removed from the host's environment before the start
    stop: tuple[Signal, ...] = (Signal("TERM", 5.0), Signal("KILL", 5.0))  # how to end it, first rung first
    session_files: SessionFiles | None = None  # None: the agent keeps no records to read usage from
    # Small files by name, in the spool while the agent runs; arguments name them as f"{SPOOL}/{name}". They may
    # hold secrets. The agent finds the directory in its environment, too: RUNTURN_SPOOL.
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    # True: its standard input stays open for lines that follow `stdin`, until the worker ends it.
    live: bool = False

"""Programs that start a turn on a host or attach to one: a `Command` as shell words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapters.command import FILES, Command
from remote.containment import AS_USUAL, Containment
from remote.shell import Quoted, assignment, library, program, quote
from remote.spool import Spool

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]*")
_LARGEST_ENVIRONMENT = 120_000  # bytes; it travels in one variable, which Linux caps at 128 KiB
_LARGEST_FILES = 2**20  # bytes; they travel in the program
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_LARGEST_WORD = 65_536  # bytes; a prompt up to this is a word of the program, which saves the host two processes


@dataclass(frozen=True, slots=True)
class Request:
    """Data sent to a host to attach. Contains secrets."""

    program: bytes = field(repr=False)
    prompt: bytes = field(repr=False, default=b"")  # sent only if the host asks for it


@dataclass(frozen=True, slots=True)
class Attach:
    """Parameters of one attachment."""

    spool: Spool
    follower: str  # shared by all attachments of one follower: the next ends the one before
    nonce: str  # of this attachment's answers
    offset: int  # of the first output byte to send
    stale_s: int  # a heartbeat that was in transit for longer renews no lease
    epoch: int = 0  # input from followers with a lower epoch than another's is ignored

    def request(self, path: str = "") -> Request:
        """Return the request to follow a spool that must exist."""
        return Request(program(_functions(), "attach", variables=self.variables(), path=path))

    def variables(self) -> dict[str, str | int]:
        """Return the variables that `follower.sh` needs."""
        return {
            "root": self.spool.root,
            "id": self.spool.id,
            "seal": self.spool.seal,
            "stale": self.stale_s,
            "follower": self.follower,
            "epoch": self.epoch,
            "nonce": self.nonce,
            "offset": self.offset,
            "draft": "",
        }


def start_request(
    attach: Attach,
    command: Command,
    lease_s: int,
    *,
    workspace_roots: Sequence[str] = (),
    path: str = "",
    containment: Containment = AS_USUAL,
) -> Request:
    """Return the request that starts `command` unless it was started before, and follows it.

    If there are `workspace_roots`, its `cwd` must be in one of them; `path` goes before the host's PATH. Raise
    ValueError for a command that no shell could run as intended.
    """
    check_command(command)
    prompt = command.stdin
    word = b"" if len(prompt) > _LARGEST_WORD or b"\0" in prompt else prompt
    variables = attach.variables() | {
        "lease": lease_s,
        "ladder": " ".join(f"{rung.name}:{round(rung.grace_s * 10)}" for rung in command.stop),
        "workspace_roots": "\n".join(workspace_roots),
        "prompt": word.decode("utf-8", "surrogateescape"),
        "prompt_bytes": len(prompt),
        "prompt_lines": prompt.count(b"\n") if command.live else "",
        "files": _files(command).decode("utf-8", "surrogateescape"),
        "agent_environment": _environment(command),
        **containment.variables(command),
    }
    argv = [_argument(word, attach.spool) for word in command.argv]
    return Request(program(_functions(), "start", argv, variables, path), prompt)


def check_command(command: Command) -> None:
    """Raise ValueError for a command that no shell could run as intended."""
    if not command.argv or not command.argv[0] or command.argv[0].startswith("-"):
        raise ValueError(f"argv must begin with a program, not with {command.argv[:1]!r}")
    if not command.cwd.startswith("/"):
        raise ValueError(f"cwd must be an absolute path, not {command.cwd!r}")
    for name in (*command.env, *command.unset_env):
        if not _NAME.fullmatch(name) or name.startswith("RUNTURN_"):
            raise ValueError(f"the environment variable {name!r} is reserved by runturn, or has no valid name")
    for name, value in command.env.items():
        if "\0" in value:  # do not show it: it may be a secret
            raise ValueError(f"the environment variable {name} contains a NUL byte, which no program can receive")
    if not all(_SIGNAL.fullmatch(rung.name) for rung in command.stop):
        raise ValueError(f"signals must be named like INT, TERM or KILL; got {command.stop!r}")
    if command.live and command.stdin and not command.stdin.endswith(b"\n"):
        raise ValueError(
            "the input of a live turn consists of lines; the last line of its stdin lacks its newline"
        )
    _check_files(command.files)


def _check_files(files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        if not _FILE.fullmatch(name) or name in ("stop", "stop.new"):
            raise ValueError(f"a command's file must have a plain name, and not that of the stop file: {name!r}")
        if b"\0" in content:
            raise ValueError(f"the file {name} contains a NUL byte, which cannot be passed to a host")
    size = sum(map(len, files.values()))
    if size > _LARGEST_FILES:
        raise ValueError(f"a command's files are {size:,} bytes in total, more than {_LARGEST_FILES:,}")


def _functions() -> str:
    return library(
        "state",
        "containment",
        "scope",
        "resources",
        "repositories",
        "processes",
        "checks",
        "supervisor",
        "feeder",
        "watcher",
        "follower",
        "sessions",
        "starter",
    )


def _argument(word: str, spool: Spool) -> str | Quoted:
    """Return the word with the files' directory filled in, which perhaps only the host can expand."""
    if FILES not in word:
        return word
    directory = f"{spool.path}/files"
    path = b'"$HOME"' + quote(directory[1:]) if directory.startswith("~/") else quote(directory)
    return Quoted(path.join(map(quote, word.split(FILES))))


def _files(command: Command) -> bytes:
    """Return the shell lines that `fill` evaluates."""
    lines = (
        b'printf %%s %b >"$draft/files/%b" || return\n'
        % (quote(content.decode("utf-8", "surrogateescape")), name.encode())
        for name, content in command.files.items()
    )
    return b"".join(lines)


def _environment(command: Command) -> str:
    """Return the lines that `launch` evaluates: in the C locale, until the host's or the command's replaces it."""
    lines = {name: f"unset {name}\n".encode() for name in command.unset_env}
    lines |= {name: b"export " + assignment(name, value) for name, value in command.env.items()}
    locale = b"LC_ALL=$1\n" + lines.pop("LC_ALL", b"")
    text = b"".join(lines.values()) + locale
    if len(text) > _LARGEST_ENVIRONMENT:
        raise ValueError(f"the environment is {len(text)} bytes long, more than {_LARGEST_ENVIRONMENT}")
    return text.decode("utf-8", "surrogateescape")

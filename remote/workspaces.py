"""Workspaces created on a host for one turn: creating, reading and removing them."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host import Channel, Host
from remote.host_queries import probe
from remote.run import answered, ask
from remote.shell import library, program
from remote.tar_stream import Entry, archive, archive_size

_PATCH_S = 240.0
_FILES_S = 120.0
_REMOVE_S = 120.0
_LONGEST_LIST = 32 * 2**20  # bytes of file names
_LONGEST_ANSWER = 16_384
_LATE_S = 5.0  # for an answer that was not killed in time, or is slow in transit
_KILLED = 137  # exit status of a killed program
_SCRIPTS = ("state", "processes", "checks", "upkeep", "workspaces")


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a created workspace: a directory named after its turn."""

    root: str  # of all workspaces on that host, absolute or below ~/; created if missing
    id: str  # the turn's


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a workspace, as far as the size limit allows."""

    name: str  # bytes that are not UTF-8 as os.fsdecode decodes them
    size: int | None  # None: it cannot be read
    data: bytes


@dataclass(frozen=True, slots=True)
class MadeState:
    """A created workspace found on a host, or the draft of one."""

    id: str  # the turn's
    age_s: int | None  # since it was changed; None: the host cannot tell


Choose = Callable[[], Awaitable[Sequence[Entry]]]


async def make_of_files(host: Host, place: Place, choose: Choose, *, wants_patch: bool) -> str:
    """Create a workspace of copied files if missing; return its path. `choose` is called only if it is missing.

    Raise HostUnreachable, SpawnRefused, or whatever `choose` and reading its files raise.
    """
    return await _make(host, place, choose, {"repository": "", "ref": "", "workspace_roots": ""}, wants_patch)


async def make_worktree(host: Host, place: Place, repository: str, ref: str, roots: Sequence[str] = ()) -> str:
    """Create a git worktree of a repository, which must be below one of `roots` if any; return its path.

    Raise HostUnreachable or SpawnRefused.
    """
    variables = {"repository": repository, "ref": ref, "workspace_roots": "\n".join(roots)}
    return await _make(host, place, _nothing, variables, wants_patch=True)


async def read_patch(host: Host, place: Place, max_bytes: int) -> bytes:
    """Return the beginning of a patch with all changes since the workspace was created. Raise HostError."""
    return await _ask_within(host, _PATCH_S, "read_patch", place.root, place.id, str(max_bytes))


async def list_files(host: Host, place: Place, max_bytes: int = _LONGEST_LIST) -> tuple[list[str], bool]:
    """Return the names of the workspace's regular files, and whether those are all. Raise HostError."""
    listed = await _ask_within(host, _FILES_S, "list_files", place.root, place.id, str(max_bytes))
    *names, rest = listed.split(b"\0")
    return sorted(os.fsdecode(name.removeprefix(b"./")) for name in names), not rest and len(listed) < max_bytes


async def read_files(host: Host, place: Place, names: Sequence[str], max_bytes: int) -> list[Found]:
    """Return these files, up to `max_bytes` in total. Raise HostError."""
    given = [f"./{name}" for name in names]
    output = await _ask_within(host, _FILES_S, "read_files", place.root, place.id, str(max_bytes), *given)
    return list(_parse_files(host, names, output))


async def list_workspaces(host: Host, root: str) -> list[MadeState]:
    """Return the created workspaces below `root`. Raise HostError."""
    lines = (await _ask(host, "list_workspaces", root)).decode().splitlines()
    words = (line.split(" ") for line in lines)
    return [MadeState(name, None if age == "-" else int(age)) for name, age in words]


async def remove_workspace(host: Host, place: Place) -> None:
    """Remove a workspace, if any, its drafts, and the repository's records of them. Raise HostError."""
    await _ask(host, "remove_workspace", place.root, place.id, timeout_s=_REMOVE_S)


async def _nothing() -> Sequence[Entry]:
    return ()


async def _ask(host: Host, function: str, *args: str, timeout_s: float = 30.0) -> bytes:
    return await ask(host, _SCRIPTS, function, *args, timeout_s=timeout_s)


async def _ask_within(host: Host, seconds: float, function: str, *args: str) -> bytes:
    """Like `_ask`, with a time limit for what depends on the agent's files: git runs filters, say.

    After that long, the host kills it. That is a HostError: the host is reachable, and retrying would not help.
    """
    program = f'{library(*_SCRIPTS)}\n{function} "$@"'
    try:
        async with asyncio.timeout(seconds + _LATE_S):
            output = await probe(host, ("sh", "-c", program, "runturn", *args), seconds)
    except TimeoutError as error:
        raise HostError(host.name, f"{function} took longer than {seconds} s") from error
    if output.exit == _KILLED:
        raise HostError(host.name, f"{function} took longer than {seconds} s, and was killed")
    return answered(host, function, output)


def _parse_files(host: Host, names: Sequence[str], output: bytes) -> Iterator[Found]:
    at = 0
    for name in names:
        end = output.find(b"\n", at)
        size, _, taken = output[at:end].partition(b" ")
        at = end + 1 + int(taken or 0)
        if end < 0 or at > len(output):
            raise HostError(host.name, f"the workspace's file {name!r} could not be read")
        yield Found(name, None if size == b"-" else int(size), output[end + 1 : at])


async def _make(host: Host, place: Place, choose: Choose, variables: dict[str, str], wants_patch: bool) -> str:
    nonce = secrets.token_hex(16)
    functions = library("state", "checks", "workspaces", "maker")
    given = {"root": place.root, "id": place.id, "nonce": nonce, "wants_patch": "yes" if wants_patch else ""}
    request = program(functions, "make_workspace", (), given | variables, host.path)
    channel = await host.open_channel()
    try:
        return await _Making(host, channel, nonce, choose).run(request)
    finally:
        await channel.close()


class _Making:
    """Conversation with the maker, over one channel."""

    def __init__(self, host: Host, channel: Channel, nonce: str, choose: Choose) -> None:
        self._host = host
        self._channel = channel
        self._nonce = nonce
        self._choose = choose
        self._seen = b""

    async def run(self, request: bytes) -> str:
        """Send the request, and then what the maker asks for; return the path."""
        # Send while reading: a host that refuses does not read all of it.
        sending = asyncio.create_task(self._channel.write(request))
        reading = asyncio.create_task(self._channel.read())
        try:
            while True:
                await asyncio.wait(
                    [reading, sending] if not sending.done() else [reading], return_when="FIRST_COMPLETED"
                )
                self._raise_fault_of(sending)
                if not reading.done():
                    continue
                word, text = self._understood(reading.result())
                reading = asyncio.create_task(self._channel.read())
                if word == "MADE":
                    return text
                if word == "SEND":
                    await sending
                    sending = asyncio.create_task(self._send(text))
        finally:
            for task in (sending, reading):
                task.cancel()
            await asyncio.gather(sending, reading, return_exceptions=True)

    def _raise_fault_of(self, sending: asyncio.Task[None]) -> None:
        """Raise if the files cannot be read. The reader detects a channel that ended."""
        if sending.done() and (fault := sending.exception()) and not isinstance(fault, HostUnreachable):
            raise fault

    def _understood(self, chunk: bytes) -> tuple[str, str]:
        """Return the next answer; blank: it is incomplete. Start-up files of the shell may print before it."""
        if not chunk:
            raise HostUnreachable(self._host.name, "the channel ended while the workspace was being created")
        self._seen = self._seen[-_LONGEST_ANSWER:] + chunk
        *lines, rest = self._seen.split(b"\n")
        for line in lines:
            kind, _, said = line.partition(b" ")
            nonce, _, text = said.partition(b" ")
            if nonce == self._nonce.encode() and kind.startswith(b"RT-"):
                self._seen = rest
                return self._answered(kind[3:].decode(), os.fsdecode(text))
        return "", ""

    def _answered(self, word: str, text: str) -> tuple[str, str]:
        if word == "REFUSED":
            code, _, detail = text.partition(" ")
            raise SpawnRefused(self._host.name, code, detail.strip())
        return word, text

    async def _send(self, what: str) -> None:
        if what == "go":
            await self._channel.write(b"go\n")
            return
        entries = await self._choose()
        await self._channel.write(b"%d\n" % await asyncio.to_thread(archive_size, entries))
        chunks = archive(entries)
        while chunk := await asyncio.to_thread(next, chunks, b""):
            await self._channel.write(chunk)

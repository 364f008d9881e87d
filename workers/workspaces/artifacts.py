"""Collects a patch and chosen files from a workspace, as they appear in a result."""

from __future__ import annotations

import asyncio
import base64

from adapters.protocol.result import Collected, CollectedFile
from adapters.protocol.workspace import Collect, matcher
from ops.redaction import Redactor
from remote.errors import HostError, HostUnreachable
from remote.host import Host
from remote.workspaces import Found, Place, list_files, read_files, read_patch

_MOST_FILES = 1000


async def collected(host: Host, place: Place, wanted: Collect, redactor: Redactor) -> Collected:
    """Collect from the host, without secrets. Report what cannot be read as `problem`. Raises HostUnreachable."""
    gathering = _Gathering(host, place, wanted, redactor)
    steps = (wanted.patch, gathering.take_patch), (wanted.files, gathering.take_files)
    for take in (take for asked, take in steps if asked):
        try:
            await take()
        except HostUnreachable:
            raise
        except HostError as fault:
            gathering.problem = redactor.text(str(fault))
    return gathering.result()


class _Gathering:
    """A collection in progress, and the bytes it has left."""

    def __init__(self, host: Host, place: Place, wanted: Collect, redactor: Redactor) -> None:
        self.problem: str | None = None
        self._host = host
        self._place = place
        self._wanted = wanted
        self._redactor = redactor
        self._left = wanted.max_bytes
        self._patch: str | None = None
        self._files: dict[str, CollectedFile] = {}
        self._truncated = False

    def result(self) -> Collected:
        return Collected(patch=self._patch, files=self._files, truncated=self._truncated, problem=self.problem)

    async def take_patch(self) -> None:
        data = await read_patch(self._host, self._place, self._left + 1)
        self._truncated = len(data) > self._left
        data = data[: self._left]
        self._left -= len(data)
        text = self._clean(_whole_lines(data) if self._truncated else data)
        self._patch = text.decode(errors="replace")
        if "\N{REPLACEMENT CHARACTER}" in self._patch and "\N{REPLACEMENT CHARACTER}".encode() not in text:
            self.problem = "text in the patch that is not UTF-8 was replaced, so the patch does not apply as is"

    async def take_files(self) -> None:
        names, complete = await list_files(self._host, self._place)
        chosen = await asyncio.to_thread(self._chosen, names)
        self._truncated |= not complete or len(chosen) > _MOST_FILES
        for file in await read_files(self._host, self._place, chosen[:_MOST_FILES], self._left):
            self._take(file)

    def _chosen(self, names: list[str]) -> list[str]:
        matches = matcher(self._wanted.files)
        return [name for name in names if matches(name)]

    def _take(self, file: Found) -> None:
        name = self._redactor.text(file.name.encode(errors="surrogateescape").decode(errors="replace"))
        if file.size is None:
            self._files[name] = CollectedFile()
            self.problem = self.problem or f"{name} cannot be read"
            return
        cut = len(file.data) < file.size
        self._truncated |= cut
        data = self._clean(_whole_lines(file.data) if cut else file.data)
        text, encoded = _as_text(data), None
        if text is None:
            encoded = base64.b64encode(data).decode()
        elif cut and not text:
            text = None
        self._files[name] = CollectedFile(text=text, base64=encoded, size=file.size, truncated=cut)

    def _clean(self, data: bytes) -> bytes:
        return self._redactor.line(data)


def _whole_lines(data: bytes) -> bytes:
    """Return the complete lines: part of a secret in a cut line would not be recognised."""
    return data[: data.rfind(b"\n") + 1]


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None

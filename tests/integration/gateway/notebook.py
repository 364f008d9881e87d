"""A notebook in memory, and a gateway in a thread of its own, in front of a scripted API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from adapters.toolkit.metering import Metered
from adapters.toolkit.wire import Notice, Wire
from ops.gateway.exchange import Abandoned
from ops.gateway.gateway import Limits
from ops.gateway.notes import Closing, Denied, Opened, Opening
from ops.gateway.server import serve
from ops.gateway.tokens import Bearer, TokenSigner

REAL_KEY = "sk-the-real-key"
SIGNER = TokenSigner([b"s" * 32])
BEARER = Bearer("turn-1", 1, "main", 2**40)
TOKEN = SIGNER.sign(BEARER)
_TIMEOUT_S = 60.0


@dataclass
class Notes:
    """Notes in memory; tests may wait for one to be closed."""

    base_urls: Mapping[str, str]  # of each provider's API
    key: str = REAL_KEY
    denied: Denied | None = None
    opened: list[Opening] = field(default_factory=list)
    closed: dict[int, Closing] = field(default_factory=dict)
    notices: list[tuple[str, Notice]] = field(default_factory=list)
    twice: bool = False  # a note was closed twice
    _changed: threading.Condition = field(default_factory=threading.Condition)

    async def open(self, opening: Opening) -> Opened | Denied:
        with self._changed:
            if self.denied is not None:
                return self.denied
            self.opened.append(opening)
            self._changed.notify_all()
            return Opened(len(self.opened) - 1, self.key, self.base_urls[opening.provider])

    async def close(self, note_id: int, closing: Closing) -> None:
        with self._changed:
            self.twice |= note_id in self.closed
            self.closed[note_id] = closing
            self._changed.notify_all()

    async def notice(self, account: str, notice: Notice) -> None:
        with self._changed:
            self.notices.append((account, notice))

    def wait_until_closed(self, count: int = 1) -> list[Closing]:
        """The closings of all notes, once that many have been opened and closed."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.closed) == len(self.opened) >= count, _TIMEOUT_S):
                raise TimeoutError(f"{len(self.opened)} notes opened, {len(self.closed)} closed")
            return [self.closed[number] for number in sorted(self.closed)]

    @property
    def metered(self) -> list[Metered]:
        """What the metered requests cost."""
        return [
            self.closed[number].metered for number, opening in enumerate(self.opened)
            if opening.metered and number in self.closed
        ]  # fmt: skip


@contextmanager
def gateway(
    wires: Mapping[str, Wire],
    notes: Notes,
    *,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    abandoned: Abandoned = Abandoned(),  # noqa: B008
) -> Iterator[str]:
    """Serve in a thread; yield the URL."""
    started, url = threading.Event(), list[str]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with serve(wires, SIGNER, notes, limits=limits, abandoned=abandoned, grace_s=0.1) as served:
            url.append(served.url)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="gateway", daemon=True)
    thread.start()
    try:
        if not started.wait(_TIMEOUT_S):
            raise TimeoutError("the gateway did not start")
        yield url[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_TIMEOUT_S)
        loop.close()
    assert not notes.twice
    assert notes.closed.keys() == set(range(len(notes.opened)))

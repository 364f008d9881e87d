"""Gates: named points in a script where a reply waits until a test lets it go on."""

from __future__ import annotations

import asyncio
import threading


class Gate:
    """One gate. The server's event loop waits at it; threads watch and release it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reached = threading.Event()
        self._lock = threading.Lock()
        self._released = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def wait_until_reached(self, timeout_s: float = 20.0) -> None:
        """Block until a reply stands at the gate.

        Raises:
            TimeoutError: none does within `timeout_s`.
        """
        if not self._reached.wait(timeout_s):
            raise TimeoutError(f"no reply reached the gate {self._name!r} within {timeout_s} s")

    def release(self) -> None:
        """Let every reply pass, now and later."""
        with self._lock:
            self._released = True
            waiting, self._waiting = self._waiting, []
        for loop, passed in waiting:
            loop.call_soon_threadsafe(passed.set)

    async def wait_until_released(self) -> None:
        """Stand at the gate; called by the server."""
        passed = asyncio.Event()
        with self._lock:
            if not self._released:
                self._waiting.append((asyncio.get_running_loop(), passed))
            else:
                passed.set()
        self._reached.set()
        await passed.wait()


class Gates:
    """The gates of one server, made when first named."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, name: str) -> Gate:
        with self._lock:
            return self._gates.setdefault(name, Gate(name))

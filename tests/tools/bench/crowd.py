"""Turns whose agents print what a conductor writes to them, with the time in it, and a live subscriber to all."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import redis

from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from workers.brokers.settings import events_exchange

_RECORDING = RECORDINGS / "a_parallel_tools.jsonl"


class Choir:
    """Source of everything that the agents print, through one pipe each."""

    def __init__(self, folder: Path, size: int) -> None:
        self.pipes = [folder / f"pipe.{number}" for number in range(size)]
        self.written = 0  # lines, in the last song
        lines = _RECORDING.read_bytes().splitlines()
        self._first, self._last = lines[0], lines[-1]
        self._line = orjson.loads(next(line for line in lines if b'"text":"Done both."' in line))
        self._writers: list[int] = []

    def __enter__(self) -> Choir:
        for pipe in self.pipes:
            os.mkfifo(pipe, 0o666)
            self._writers.append(os.open(pipe, os.O_RDWR))  # which waits for nobody
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers:
            os.close(writer)
        self._writers.clear()

    def begin(self) -> None:
        """Write the first line of each agent."""
        for writer in self._writers:
            os.write(writer, self._first + b"\n")

    def sing(self, seconds: float) -> None:
        """Write a line per second for each agent, evenly spread, for `seconds`."""
        self.written, size = 0, len(self._writers)
        began = time.monotonic()
        while (due := self.written / size) < seconds:
            time.sleep(max(0.0, began + due - time.monotonic()))
            os.write(self._writers[self.written % size], self._now(self.written))
            self.written += 1

    def end(self) -> None:
        """Write the last line of each agent, and close its pipe."""
        for writer in self._writers:
            os.write(writer, self._last + b"\n")
        self.__exit__()

    def _now(self, number: int) -> bytes:
        message: dict[str, Any] = self._line["message"]
        message["id"] = f"msg_{number}_{time.monotonic_ns()}"
        message["content"][0]["text"] = f"{time.time():.6f}"
        return orjson.dumps(self._line) + b"\n"


class Audience:
    """Live subscriber to all turns; a client subscribes to one."""

    def __init__(self, fleet: Fleet) -> None:
        self.heard: set[str] = set()  # turns of whom there was anything from their agents
        self.late: list[float] = []  # seconds, of each event with the time in it
        self._redis = redis.Redis(unix_socket_path=str(fleet.broker.socket))
        exchange = events_exchange(fleet.broker.url).name
        self._subscription = self._redis.pubsub(ignore_subscribe_messages=True)
        self._subscription.psubscribe(f"/*{exchange}/*")  # as kombu names what it publishes to
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Audience:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._subscription.close()

    def forget(self) -> None:
        """Forget the latencies so far."""
        self.late = []

    def connections(self) -> int:
        """Count connections to the server (broker and result backend), including the benchmark's own few."""
        return len(self._redis.client_list())

    def _listen(self) -> None:
        while not self._over.is_set():
            message = self._subscription.get_message(timeout=0.5)
            if message is not None:
                self._take(orjson.loads(message["data"]), time.time())

    def _take(self, message: dict[str, Any], now: float) -> None:
        batch = orjson.loads(message["body"])
        for event in batch["events"]:
            if event["event"] == "session_started":
                self.heard.add(batch["turn_id"])
            elif event["event"] == "text":
                self.late.append(now - float(event["text"]))

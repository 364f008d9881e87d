"""What the scripted API billed, request by request: the truth that a turn's own count is compared with.

An event is booked just before it is written, so that whoever has read it finds it on the bill; a real API
too bills what it generates, delivered or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .script import PLACEHOLDER_OUTPUT_TOKENS, Usage

UNROUTED = "(unrouted)"  # the script name of requests that no script claims


@dataclass(frozen=True, slots=True)
class BilledRequest:
    """One `POST /v1/messages` and what it cost so far."""

    script: str
    list_name: str  # which reply list answered: `main`, `side`, or a branch's name
    number: int  # 1 for the script's first request
    model: str  # as requested
    prompt: str  # text of the newest user message, for assertions
    session: str  # the client's session id, "" when it sends none
    status: int | None = None  # None: nothing was answered (yet)
    usage: Usage = field(default_factory=Usage)  # input from `message_start` on, output from `message_delta` on
    stop_reason: str | None = None
    partial: bool = True  # the message has not (yet) reached its end
    disconnected: bool = False  # the client left first
    open: bool = True  # still being answered


@dataclass(frozen=True, slots=True)
class Bill:
    """All requests of one script, oldest first."""

    requests: tuple[BilledRequest, ...]

    @property
    def by_model(self) -> dict[str, Usage]:
        """Tokens billed per model. A model that billed nothing is left out."""
        totals: dict[str, Usage] = {}
        for request in self.requests:
            if request.usage != Usage():
                totals[request.model] = totals.get(request.model, Usage()) + request.usage
        return totals

    @property
    def total(self) -> Usage:
        """Tokens of all models."""
        return sum((request.usage for request in self.requests), Usage())

    @property
    def partial(self) -> tuple[BilledRequest, ...]:
        """The requests whose message did not reach its end."""
        return tuple(request for request in self.requests if request.partial)


class Accounts:
    """The books of one server. Written by its event loop, read and awaited by test threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[BilledRequest] = []

    def open(self, script: str, list_name: str, model: str, prompt: str, session: str) -> Entry:
        """Book the arrival of a request."""
        with self._changed:
            number = 1 + sum(request.script == script for request in self._requests)
            self._requests.append(BilledRequest(script, list_name, number, model, prompt, session))
            self._changed.notify_all()
            return Entry(self, len(self._requests) - 1)

    def bill(self, script: str) -> Bill:
        """What the script cost up to now."""
        with self._changed:
            return self._bill(script)

    def bills(self) -> dict[str, Bill]:
        """The bill of every script that got a request."""
        with self._changed:
            return {request.script: self._bill(request.script) for request in self._requests}

    def wait_for(self, script: str, condition: Callable[[Bill], bool], what: str, timeout_s: float) -> Bill:
        """Block until the script's bill fulfils the condition.

        Raises:
            TimeoutError: it does not within `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self._bill(script)), timeout_s):
                raise TimeoutError(f"script {script!r}: {what} not within {timeout_s} s; {self._bill(script)}")
            return self._bill(script)

    def _bill(self, script: str) -> Bill:
        return Bill(tuple(request for request in self._requests if request.script == script))

    def _change(self, index: int, change: Callable[[BilledRequest], BilledRequest]) -> None:
        with self._changed:
            self._requests[index] = change(self._requests[index])
            self._changed.notify_all()


class Entry:
    """The line of one request in the books, as the server writes it while it answers."""

    def __init__(self, accounts: Accounts, index: int) -> None:
        self._accounts = accounts
        self._index = index

    def refuse(self, status: int) -> None:
        """The request was answered with an error and costs nothing."""
        self._update(lambda line: replace(line, status=status, partial=False))

    def answer(self) -> None:
        """The status line goes out; nothing is billed before `message_start`."""
        self._update(lambda line: replace(line, status=200))

    def begin(self, usage: Usage) -> None:
        """`message_start` goes out: its input and cache tokens are billed, and the placeholder output."""
        begun = replace(usage, output=PLACEHOLDER_OUTPUT_TOKENS)
        self._update(lambda line: replace(line, usage=begun))

    def finish_output(self, usage: Usage, stop_reason: str) -> None:
        """`message_delta` goes out: the final output is billed."""
        self._update(lambda line: replace(line, usage=usage, stop_reason=stop_reason))

    def complete(self) -> None:
        """`message_stop` goes out."""
        self._update(lambda line: replace(line, partial=False))

    def disconnect(self) -> None:
        """The client left before the answer was whole."""
        self._update(lambda line: replace(line, disconnected=True, partial=True))

    def close(self) -> None:
        """The server is done with the request."""
        self._update(lambda line: replace(line, open=False))

    def _update(self, change: Callable[[BilledRequest], BilledRequest]) -> None:
        self._accounts._change(self._index, change)

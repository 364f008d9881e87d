"""Whatever a client sends, nothing of it is forwarded without a valid token, and the gateway stays up."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from adapters.claude_code.wire import AnthropicWire
from ops.gateway.gateway import Limits
from ops.gateway.notes import Denied, Ending
from ops.gateway.tokens import TokenSigner
from tests.fakes.model_api import HttpError, ModelApi, Reply, Script, Text

from .notebook import BEARER, REAL_KEY, SIGNER, TOKEN, Notes, gateway

TIMEOUT_S = 60.0
BODY = json.dumps({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "hi"}]}).encode()
MESSAGES = "/anthropic/v1/messages"
FOREIGN = TokenSigner([b"x" * 32]).sign(BEARER)
EXPIRED = SIGNER.sign(replace(BEARER, expires_at=1))


class Served:
    """A gateway and what it forwards."""

    def __init__(self, url: str, notes: Notes, api: ModelApi | None) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.address = host, int(port)
        self.notes = notes
        self._api = api

    def exchange(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes back until the connection is closed."""
        with socket.create_connection(self.address, TIMEOUT_S) as connection:
            with contextlib.suppress(ConnectionError):  # it may refuse before it has read everything
                connection.sendall(data)
            received = bytearray()
            with contextlib.suppress(ConnectionError):
                while chunk := connection.recv(65536):
                    received += chunk
            return bytes(received)

    @property
    def forwarded(self) -> int:
        """The number of requests that reached the API."""
        return sum(len(bill.requests) for bill in self._api.bills().values()) if self._api else 0


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    replies = tuple(Reply((Text("hello"),)) for _ in range(100))
    with ModelApi(Script("turn", replies=replies, key=REAL_KEY)) as api:
        notes = Notes({"anthropic": api.base_url})
        limits = Limits(body_bytes=10_000)
        with gateway({"anthropic": AnthropicWire()}, notes, limits=limits) as url:
            yield Served(url, notes, api)


def request(
    *headers: str, method: str = "POST", target: str = MESSAGES, token: str | None = TOKEN, body: bytes = BODY
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: x", "connection: close", *headers]
    lines += [] if token is None else [f"x-api-key: {token}"]
    lines += (
        [f"content-length: {len(body)}"]
        if not any("ength" in line or "ncoding" in line for line in headers)
        else []
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


REFUSED = {
    "no token": (request(token=None), 401),
    "empty token": (request(token=""), 401),
    "foreign token": (request(token=FOREIGN), 401),
    "expired token": (request(token=EXPIRED), 401),
    "changed token": (request(token=TOKEN[:-2] + "AA"), 401),
    "real key": (request(token=REAL_KEY), 401),
    "bearer of nothing": (request("authorization: Bearer", token=None), 401),
    "long body": (request(body=b"x" * 10_001), 413),
    "long body that is announced only": (request("content-length: 99999999", body=b""), 413),
    "long body in chunks": (request("transfer-encoding: chunked", body=chunked(*[b"x" * 999] * 11)), 413),
    "broken chunk": (request("transfer-encoding: chunked", body=b"5\r\nhello\r\nZZ\r\n"), 400),
    "two lengths": (request("content-length: 3", "content-length: 5", body=b"abcde"), 400),
    "length and chunks": (request("content-length: 3", "transfer-encoding: chunked", body=chunked(b"abc")), 400),
    "negative length": (request("content-length: -1", body=b""), 400),
    "folded header": (request("x-a: b", " x-api-key: c"), 400),
    "header with a blank before its colon": (request("x-a : b"), 400),
    "header with a zero": (request("x-a: b\0c"), 400),
    "long header": (request("x-a: " + "b" * 10_000), 400),
    "many headers": (request(*[f"x-{n}: 1" for n in range(500)]), 400),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10, 400),
    "another API": (request(target="/openai/v1/responses"), 404),
    "no API": (request(target="/"), 404),
    "whole address": (request(target="http://169.254.169.254/anthropic/v1/messages"), 404),
    "tunnel": (request(method="CONNECT", target="169.254.169.254:80"), 404),
    "way up": (request(target="/anthropic/v1/../v1/messages"), 404),
    "hidden way up": (request(target="/anthropic/v1/%2e%2e/v1/messages"), 404),
    "two slashes": (request(target="/anthropic//v1/messages"), 404),
    "batches": (request(target="/anthropic/v1/messages/batches"), 404),
    "files": (request(target="/anthropic/v1/files"), 404),
    "deletion": (request(method="DELETE", target="/anthropic/v1/models/x"), 404),
    "metadata of the organization": (request(method="GET", target="/anthropic/v1/organizations/me"), 404),
}


@pytest.mark.parametrize("what", REFUSED)
def test_request_is_refused_and_nothing_is_forwarded(served: Served, what: str) -> None:
    data, expected = REFUSED[what]
    before = served.forwarded, len(served.notes.opened)
    answer = served.exchange(data)
    assert status(answer) == expected
    assert (served.forwarded, len(served.notes.opened)) == before
    assert REAL_KEY.encode() not in answer
    assert status(served.exchange(request())) == 200


def test_body_that_does_not_arrive_in_time_is_refused() -> None:
    notes = Notes({"anthropic": "http://127.0.0.1:1"})
    with gateway({"anthropic": AnthropicWire()}, notes, limits=Limits(arrival_s=0.2)) as url:
        answer = Served(url, notes, None).exchange(request("content-length: 900", body=b"x"))
    assert (status(answer), notes.opened) == (408, [])


def test_client_that_does_not_read_holds_up_nobody() -> None:
    long = Reply((Text("x" * 2**22),))
    with ModelApi(Script("turn", replies=(long,) * 6, key=REAL_KEY)) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway({"anthropic": AnthropicWire()}, notes) as url, contextlib.ExitStack() as stack:
            served = Served(url, notes, api)
            for _ in range(5):
                idle = stack.enter_context(socket.create_connection(served.address, TIMEOUT_S))
                idle.sendall(request())
            assert status(served.exchange(request())) == 200
            assert len(notes.closed) < 6, "none was held up"
            stack.close()
            notes.wait_until_closed(6)


def test_request_that_is_denied_gets_the_reason_in_the_format_of_its_api(served: Served) -> None:
    served.notes.denied = Denied(402, "the budget of this turn is used up")
    try:
        answer = served.exchange(request())
    finally:
        served.notes.denied = None
    assert status(answer) == 402
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error == {"type": "billing_error", "message": "the budget of this turn is used up"}


def test_error_of_the_api_passes_and_tells_the_state_of_the_account() -> None:
    limited = HttpError(429, "rate_limit_error", "slow down", headers={"retry-after": "30"})
    with ModelApi(Script("turn", replies=(limited,), key=REAL_KEY)) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway({"anthropic": AnthropicWire()}, notes) as url:
            answer = Served(url, notes, api).exchange(request())
            (closing,) = notes.wait_until_closed()
    assert status(answer) == 429
    assert b"retry-after: 30" in answer.lower()
    assert (closing.ending, closing.metered.complete, closing.metered.shares) == (Ending.ANSWERED, True, ())
    ((account, notice),) = notes.notices
    assert (account, notice.wait_s) == ("main", 30)


def test_api_that_cannot_be_reached_is_an_error_that_costs_nothing() -> None:
    with socket.socket() as taken:  # bound, but it does not listen
        taken.bind(("127.0.0.1", 0))
        notes = Notes({"anthropic": f"http://127.0.0.1:{taken.getsockname()[1]}"})
        with gateway({"anthropic": AnthropicWire()}, notes) as url:
            answer = Served(url, notes, None).exchange(request())
    assert status(answer) == 502
    (closing,) = notes.wait_until_closed()
    assert (closing.ending, closing.status, closing.metered.complete) == (Ending.NOT_SENT, None, True)

"""However a request ends, its note is closed, once, and says how."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from adapters.toolkit.wire import AccountState
from adapters.usage import Tokens
from ops.gateway import exchange
from ops.gateway.exchange import Abandoned
from ops.gateway.notes import Ending
from tests.fakes.model_api import Hold, ModelApi, Reply, Script, Text, Usage

from .notebook import REAL_KEY, Notes, gateway
from .test_hostile_clients import request
from .test_passing import TIMEOUT_S, WIRES, posted

USAGE = Usage(input=25, output=321)
HELD = Reply((Text("the answer"),), USAGE, hold=Hold("gate", after_events=3))


@contextmanager
def api_that(answers: Callable[[socket.socket], None]) -> Iterator[str]:
    """An API that reads one request and then does something with its connection."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                received = b""
                while not received.endswith(b"]}"):  # to close with bytes unread would reset the connection
                    received += connection.recv(65536)
                answers(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(TIMEOUT_S)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_LOOK_S", 0.1)


def test_gateway_that_is_stopped_closes_its_notes() -> None:
    with ModelApi(Script("turn", replies=(HELD,), key=REAL_KEY)) as api:
        notes = Notes({"anthropic": api.base_url})
        with contextlib.ExitStack() as stack:
            with gateway(WIRES, notes) as url:
                assert stack.enter_context(posted(url)).read1(1)
            (closing,) = notes.closed.values()
        api.gate("gate").release()
    assert (closing.ending, closing.metered.complete) == (Ending.STOPPED, False)
    assert closing.metered.tokens == Tokens(25, 1)


@pytest.mark.parametrize("abandoned", [Abandoned(drain=False), Abandoned(drain_s=0.1)])
def test_answer_that_is_not_to_be_read_any_further_is_closed(abandoned: Abandoned) -> None:
    with ModelApi(Script("turn", replies=(HELD,), key=REAL_KEY)) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway(WIRES, notes, abandoned=abandoned) as url:
            with posted(url) as answer:
                assert answer.read1(1)
            (closing,) = notes.wait_until_closed()
        api.gate("gate").release()
    assert (closing.ending, closing.metered.complete) == (Ending.CLOSED, False)


def test_agent_that_leaves_before_the_answer_is_noticed() -> None:
    late = Reply((Text("the answer"),), USAGE, hold=Hold("gate", after_events=0))
    with ModelApi(Script("turn", replies=(late,), key=REAL_KEY)) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway(WIRES, notes, abandoned=Abandoned(drain=False)) as url:
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), TIMEOUT_S) as agent:
                agent.sendall(request())
                api.wait_for_requests("turn", 1)
            (closing,) = notes.wait_until_closed()
        api.gate("gate").release()
    assert (closing.ending, closing.status) == (Ending.CLOSED, None)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD[:20], HEAD, HEAD + b"5\r\nhello\r\n", HEAD + b"5\r\nhello\r\nZZ\r\n"])
def test_api_that_breaks_off_or_makes_no_sense_ends_the_request(sent: bytes) -> None:
    with api_that(lambda connection: connection.sendall(sent)) as url_of_api:
        notes = Notes({"anthropic": url_of_api})
        with gateway(WIRES, notes) as url, posted(url) as answer:
            if answer.status == 200:
                with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                    answer.read()
            else:
                assert answer.status == 502
            (closing,) = notes.wait_until_closed()
    assert (closing.ending, closing.metered.complete) == (Ending.CUT, False)


def refusal(status: int, body: bytes, coding: str = "identity") -> bytes:
    head = f"HTTP/1.1 {status} No\r\ncontent-encoding: {coding}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


NO_CREDIT = b'{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}'


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_error_tells_the_state_of_the_account_even_if_it_is_compressed(coding: str) -> None:
    body = gzip.compress(NO_CREDIT) if coding == "gzip" else NO_CREDIT
    with api_that(lambda connection: connection.sendall(refusal(400, body, coding))) as url_of_api:
        notes = Notes({"anthropic": url_of_api})
        with gateway(WIRES, notes) as url, posted(url) as answer:
            assert (answer.status, answer.read()) == (400, body)
            notes.wait_until_closed()
    ((account, notice),) = notes.notices
    assert (account, notice.state) == ("main", AccountState.EXHAUSTED)


@pytest.mark.parametrize(
    ("status", "body", "complete"),
    [(529, NO_CREDIT, True), (504, b"<html>", False), (502, b"[]", False), (500, b"7", False), (404, b"", True)],
)
def test_error_of_a_proxy_before_the_api_says_nothing_about_the_cost(
    status: int, body: bytes, complete: bool
) -> None:
    with api_that(lambda connection: connection.sendall(refusal(status, body))) as url_of_api:
        notes = Notes({"anthropic": url_of_api})
        with gateway(WIRES, notes) as url, posted(url) as answer:
            assert (answer.status, answer.read()) == (status, body)
            (closing,) = notes.wait_until_closed()
    assert (closing.ending, closing.metered.complete) == (Ending.ANSWERED, complete)

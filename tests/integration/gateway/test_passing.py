"""What passes the gateway is what was sent: every byte of an answer, and all headers but the credential."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adapters.claude_code.wire import AnthropicWire
from adapters.toolkit.metering import Share
from adapters.usage import Tokens
from ops.gateway.notes import Ending
from tests.fakes.model_api import Fault, Hold, HttpError, ModelApi, Reply, Script, Text, Thinking, ToolUse, Usage

from .notebook import REAL_KEY, TOKEN, Notes, gateway

WIRES = {"anthropic": AnthropicWire()}
SONNET = "claude-sonnet-4-5"
USAGE = Usage(input=25, output=321, cache_read=9000, cache_creation=700, cache_creation_1h=500)
TOKENS = Tokens(25, 321, 9000, 700)
BLOCKS = (Thinking("hm"), Text("the answer " * 200), ToolUse("Bash", {"command": "ls"}))
TIMEOUT_S = 60.0


def script(reply: Reply | HttpError) -> Script:
    return Script("turn", replies=(reply,), key=REAL_KEY)


@contextmanager
def posted(
    url: str, *, stream: bool = True, token: str = TOKEN, **headers: str
) -> Iterator[http.client.HTTPResponse]:
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=TIMEOUT_S)
    body = {"model": SONNET, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    connection.request(
        "POST", "/anthropic/v1/messages?beta=true", json.dumps(body), {"x-api-key": token, **headers}
    )
    try:
        yield connection.getresponse()
    finally:
        connection.close()


@pytest.mark.parametrize("stream", [True, False])
def test_answer_passes_as_it_is_and_its_cost_is_noted(stream: bool) -> None:
    with ModelApi(script(Reply(BLOCKS, USAGE, chunks=40))) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway(WIRES, notes) as url, posted(url, stream=stream) as answer:
            assert answer.status == 200
            assert answer.headers["request-id"].startswith("req_")
            body = answer.read()
        (closing,) = notes.wait_until_closed()
    assert closing.ending is Ending.ANSWERED
    assert closing.metered.shares == (Share(SONNET, TOKENS, 500),)
    assert closing.metered.complete
    assert closing.request_id == answer.headers["request-id"]
    assert closing.metered.answer_id.encode() in body


def test_agent_that_leaves_is_billed_to_the_end() -> None:
    held = Reply(BLOCKS, USAGE, chunks=40, hold=Hold("gate", after_events=5))
    with ModelApi(script(held)) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway(WIRES, notes) as url:
            with posted(url) as answer:
                assert answer.read1(1)
            api.gate("gate").release()
            (closing,) = notes.wait_until_closed()
    assert closing.ending is Ending.DRAINED
    assert (closing.metered.tokens, closing.metered.complete) == (TOKENS, True)


@pytest.mark.parametrize("kind", ["cut", "reset", "error"])
def test_answer_that_breaks_off_breaks_off_for_the_agent(kind: str) -> None:
    fault = Fault(kind, after_events=6)  # type: ignore[arg-type]
    with ModelApi(script(Reply(BLOCKS, USAGE, chunks=40, fault=fault))) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway(WIRES, notes) as url, posted(url) as answer:
            if kind == "reset":
                with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                    answer.read()
            else:
                answer.read()
        (closing,) = notes.wait_until_closed()
    assert closing.ending is (Ending.CUT if kind == "reset" else Ending.ANSWERED)
    assert not closing.metered.complete
    # What arrived together with the reset may be lost.
    assert closing.metered.tokens == Tokens(25, 1, 9000, 700) or (kind == "reset" and not closing.metered.shares)


def test_same_bytes_with_and_without_the_gateway() -> None:
    fixed = Reply(BLOCKS, USAGE, chunks=40)
    with ModelApi(Script("turn", replies=(fixed, fixed), key=REAL_KEY)) as api:
        notes = Notes({"anthropic": api.base_url})
        with gateway(WIRES, notes) as url, posted(url) as through:
            one = through.read().replace(notes.wait_until_closed()[0].metered.answer_id.encode(), b"ID")
        connection = http.client.HTTPConnection(api.base_url.removeprefix("http://"))
        body = {"model": SONNET, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        connection.request("POST", "/v1/messages", json.dumps(body), {"x-api-key": REAL_KEY})
        direct = connection.getresponse()
        other = direct.read()
        connection.close()
    message_id = json.loads(other.split(b"data: ")[1].split(b"\n")[0])["message"]["id"]
    other = other.replace(message_id.encode(), b"ID")
    assert hashlib.sha256(one).hexdigest() == hashlib.sha256(other).hexdigest()
    volatile = {"date", "request-id"}
    assert {k.lower(): v for k, v in through.getheaders() if k.lower() not in volatile} == {
        k.lower(): v for k, v in direct.getheaders() if k.lower() not in volatile
    }

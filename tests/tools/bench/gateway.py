"""What the gateway adds to an answer's first byte, beside the bare API in one run; and the memory of a stream.

`python -m tests.tools.bench.gateway api`, or `gateway URL`, serves until its input ends; it prints its URL first.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress

import psutil
from aiohttp import web

from adapters.claude_code.wire import AnthropicWire
from ops.gateway.server import serve
from tests.fakes.model_api import Reply, Text, Usage
from tests.fakes.model_api.messages import message_events
from tests.integration.gateway.notebook import SIGNER, TOKEN, Notes
from tests.tools.bench.rows import Rows, at_most, informs

_WARM_UP, _REQUESTS = 20, 300
_STREAMS = 1000
_GOAL_MS, _GOAL_KIB = 2.0, 100.0
_GRACE_S = 0.1  # aiohttp takes 0 for endless
_BODY = b'{"model": "claude-sonnet-4-5", "prompt": "%s"}' % (b"x" * 2**18)  # as long as a conversation
_HEAD = b"POST %s HTTP/1.1\r\nhost: x\r\nx-api-key: %s\r\ncontent-length: %d\r\n\r\n"
_EVENTS = [
    event.encode()
    for event in message_events(
        Reply((Text("hello"),), Usage(10, 5)), model="claude-sonnet-4-5", message_id="msg_1"
    )
]


def gateway_overhead() -> Rows:
    """Measure requests in turn, directly and through the gateway; then many streams at once."""
    with _served("api") as (api, _), _served("gateway", api) as (url, process):
        return asyncio.run(_measure(api, url, process))


async def _measure(api: str, gateway: str, process: psutil.Process) -> Rows:
    ways = {"direct": (api, b"/v1/messages"), "through": (gateway, b"/anthropic/v1/messages")}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_WARM_UP + _REQUESTS):
        for name, (url, path) in ways.items():
            took[name].append(await _first_byte_s(url, path))
    direct, through = (statistics.median(times[_WARM_UP:]) * 1000 for times in took.values())
    before = process.memory_info().rss
    async with AsyncExitStack() as stack:
        for _ in range(_STREAMS):
            await _opened(gateway, b"/anthropic/v1/messages?hold", stack)
        grown = process.memory_info().rss - before
    return {
        "first_byte_without_gateway": informs(direct, "ms"),
        "gateway_adds_to_first_byte": at_most(through - direct, _GOAL_MS, "ms"),
        "gateway_memory_per_stream": at_most(grown / _STREAMS / 1024, _GOAL_KIB, "KiB"),
    }


async def _first_byte_s(url: str, path: bytes) -> float:
    async with AsyncExitStack() as stack:
        began = time.perf_counter()
        await _opened(url, path, stack)
        return time.perf_counter() - began


async def _opened(url: str, path: bytes, stack: AsyncExitStack) -> None:
    """Send a request, and return once the answer's first event is there."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    stack.callback(writer.close)
    writer.write(_HEAD % (path, TOKEN.encode(), len(_BODY)) + _BODY)
    await reader.readuntil(b"message_start")


@contextmanager
def _served(*what: str) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "tests.tools.bench.gateway", *what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield process.stdout.readline().strip(), psutil.Process(process.pid)
        finally:
            process.stdin.close()


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    with suppress(ConnectionError):  # the client has seen enough
        await response.prepare(request)
        await response.write(_EVENTS[0])
        if "hold" in request.query_string:
            await asyncio.Event().wait()
        for event in _EVENTS[1:]:
            await response.write(event)
    return response


async def _serve_api(over: Awaitable[object]) -> None:
    runner = web.ServerRunner(web.Server(_answer), shutdown_timeout=_GRACE_S)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=_STREAMS)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await over
    await runner.cleanup()


async def _serve_gateway(over: Awaitable[object], api: str) -> None:
    async with serve(
        {"anthropic": AnthropicWire()}, SIGNER, Notes({"anthropic": api}), grace_s=_GRACE_S
    ) as served:
        print(served.url, flush=True)
        await over


async def _main(what: str, *arguments: str) -> None:
    serving: dict[str, Callable[..., Awaitable[None]]] = {"api": _serve_api, "gateway": _serve_gateway}
    await serving[what](asyncio.to_thread(sys.stdin.read), *arguments)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

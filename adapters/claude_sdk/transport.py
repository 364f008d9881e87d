"""Transport of the SDK over the wire of a live turn, instead of its own subprocess.

The SDK receives only the control protocol; the parser reads the agent's other lines. After a takeover, the
transport replays: it does not repeat what the previous worker sent, and finds the agent's answers among its lines.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import anyio
from claude_agent_sdk import CLIConnectionError, Transport

from adapters.claude_sdk.opening import Record
from adapters.live import Wire
from adapters.toolkit.json_lines import decode

_OURS = re.compile(
    rb'"type":\s?"(?:control_request|control_response|control_cancel_request|command_lifecycle|result)"'
    rb'|"subtype":\s?"session_state_changed"'
)
_UNDER_WAY = ("queued", "started")  # states of a pending message; any other is final


class WireTransport(Transport):
    """Transport over a wire. Use it only in the event loop that runs the conversation."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._handshake: str | None = None  # id of the request that opened the conversation
        self._answered: set[str] = set()  # requests of the agent answered by an earlier worker
        self._rehearsed: set[str] = set()  # those that the SDK sees again; its answers are dropped
        self._aliases: dict[str, str] = {}
        self._asked: dict[str, anyio.Event] = {}
        self._messages: dict[str, bool] = {}  # our messages by id; True: handled
        self._told_of_messages = False
        self._results = 0
        self._state: str | None = None
        self._changed = anyio.Event()
        self.ended = False  # the agent has exited
        self._closed = False  # the agent's output is no longer read
        self.holds_gates: bool | None = None  # True: a failing hook blocks the tool; None: not known yet
        for line in wire.said:
            self._recall(decode(line))

    @property
    def at_rest(self) -> bool:
        """Return True if the agent has answered all messages and is idle."""
        if not self._results or self._state not in (None, "idle"):
            return False
        if self._told_of_messages:
            return all(self._messages.values())
        return self._results >= len(self._messages)

    async def rest(self) -> None:
        """Wait until the agent is at rest or has exited."""
        while not (self.ended or self.at_rest):
            await self._changed.wait()

    async def end(self) -> None:
        """Wait until the agent has exited."""
        while not self.ended:
            await self._changed.wait()

    # -- called by the SDK

    async def connect(self) -> None:
        """Do nothing: the wire is connected."""

    def is_ready(self) -> bool:
        """Return True until the agent has exited."""
        return not self.ended

    async def write(self, data: str) -> None:
        """Send a line. For a request, wait for the answer here: the SDK itself waits only a minute."""
        line = data.strip().encode()
        record = decode(line)
        if record["type"] == "control_request":
            await self._ask(record, line)
        elif record["type"] != "control_response" or record["response"]["request_id"] not in self._rehearsed:
            self._note(record)
            await self._wire.write(line)

    async def read_messages(self) -> AsyncIterator[Record]:
        """Yield the agent's lines of the control protocol."""
        try:
            async for line in self._wire.lines():
                if _OURS.search(line) and (shown := self._read(line)) is not None:
                    yield shown
            self.ended = True
        finally:  # also if the SDK has given up
            self._closed = True
            self._tell()

    async def end_input(self) -> None:
        """Close the agent's input."""
        await self._wire.end_input()

    async def close(self) -> None:
        """Do nothing: the agent outlives this worker."""

    # -- input of earlier workers

    def _recall(self, record: Record) -> None:
        kind = record.get("type")
        if kind == "control_request" and record["request"]["subtype"] == "initialize":
            self._handshake = record["request_id"]
        elif kind == "control_response":
            self._answered.add(record["response"]["request_id"])
        self._note(record)

    def _note(self, record: Record) -> None:
        if record.get("type") == "user":
            self._messages[str(record.get("uuid"))] = False

    # -- requests of the SDK

    async def _ask(self, record: Record, line: bytes) -> None:
        request_id = record["request_id"]
        answered = self._asked[request_id] = anyio.Event()
        if record["request"]["subtype"] == "initialize" and self._handshake is not None:
            self._aliases[self._handshake] = request_id
        else:
            await self._wire.write(line)
        if not self._closed:
            await answered.wait()
        if self._asked.pop(request_id, None) is not None:
            raise CLIConnectionError("the agent has exited, or the worker detached")

    # -- the agent's lines

    def _read(self, line: bytes) -> Record | None:
        try:
            record: Record = decode(line)
            return self._reader(record)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # the parser reports unreadable lines

    def _reader(self, record: Record) -> Record | None:
        kind = record["type"]
        if kind == "control_response":
            return self._response(record)
        if kind == "control_request":
            return self._request(record)
        if kind == "control_cancel_request":
            return record
        if kind == "command_lifecycle":
            self._told_of_messages = True
            if record["state"] not in _UNDER_WAY:
                self._messages[record["command_uuid"]] = True
        elif kind == "result":
            self._results += 1
        elif kind == "system" and record.get("subtype") == "session_state_changed":
            self._state = record["state"]
        self._tell()
        return None

    def _response(self, record: Record) -> Record:
        response = record["response"]
        request_id = self._aliases.get(response["request_id"], response["request_id"])
        if self.holds_gates is None:
            self.holds_gates = bool((response.get("response") or {}).get("hook_on_failure_supported"))
        if request_id in self._asked:
            self._asked.pop(request_id).set()
        return {**record, "response": {**response, "request_id": request_id}}

    def _request(self, record: Record) -> Record | None:
        request_id, request = record["request_id"], record["request"]
        if request_id not in self._answered:
            return record
        if request["subtype"] != "mcp_message" or request["message"].get("method") == "tools/call":
            return None
        self._rehearsed.add(request_id)  # our MCP server must see its handshake
        return record

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        if self._closed:
            for asked in self._asked.values():
                asked.set()

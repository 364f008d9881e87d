"""How the SDK's words travel: over the wire of a live turn, in place of its own subprocess.

It is shown the control protocol alone; the rest of the agent's lines are the parser's. For a worker that takes
over, it rehearses: what the worker before has said is not said again, and what the agent has answered is found
among its lines.
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
_UNDER_WAY = ("queued", "started")  # of a message; anything else is its end


class WireTransport(Transport):
    """See `claude_agent_sdk.Transport`. It belongs to the loop that leads the conversation."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._handshake: str | None = None  # id of the request that opened the conversation
        self._answered: set[str] = set()  # requests of the agent that were answered before us
        self._rehearsed: set[str] = set()  # those that the SDK is shown all the same: its answers go nowhere
        self._aliases: dict[str, str] = {}
        self._asked: dict[str, anyio.Event] = {}
        self._messages: dict[str, bool] = {}  # ours, by id: whether it is done with
        self._told_of_messages = False
        self._results = 0
        self._state: str | None = None
        self._changed = anyio.Event()
        self.ended = False  # the agent has
        self._closed = False  # nobody reads what it says
        self.holds_gates: bool | None = None  # whether a hook that fails blocks the tool; None: not known yet
        for line in wire.said:
            self._recall(decode(line))

    @property
    def at_rest(self) -> bool:
        """Whether the agent has answered all that it was told, and has nothing more to do."""
        if not self._results or self._state not in (None, "idle"):
            return False
        if self._told_of_messages:
            return all(self._messages.values())
        return self._results >= len(self._messages)

    async def rest(self) -> None:
        """Return when the agent is at rest, or has ended."""
        while not (self.ended or self.at_rest):
            await self._changed.wait()

    async def end(self) -> None:
        """Return when the agent has ended."""
        while not self.ended:
            await self._changed.wait()

    # -- what the SDK calls

    async def connect(self) -> None:
        """There is nothing to connect."""

    def is_ready(self) -> bool:
        """Whether the agent is there."""
        return not self.ended

    async def write(self, data: str) -> None:
        """Say a line. Of a request, wait for the answer here: the SDK itself is patient for a minute only."""
        line = data.strip().encode()
        record = decode(line)
        if record["type"] == "control_request":
            await self._ask(record, line)
        elif record["type"] != "control_response" or record["response"]["request_id"] not in self._rehearsed:
            self._note(record)
            await self._wire.write(line)

    async def read_messages(self) -> AsyncIterator[Record]:
        """The agent's part of the control protocol."""
        try:
            async for line in self._wire.lines():
                if _OURS.search(line) and (shown := self._read(line)) is not None:
                    yield shown
            self.ended = True
        finally:  # or the SDK has given up
            self._closed = True
            self._tell()

    async def end_input(self) -> None:
        """Nothing more follows."""
        await self._wire.end_input()

    async def close(self) -> None:
        """The agent lives on: its turn does not end with us."""

    # -- what was said before us

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
            raise CLIConnectionError("the agent has ended, or was left")

    # -- the agent's lines

    def _read(self, line: bytes) -> Record | None:
        try:
            record: Record = decode(line)
            return self._reader(record)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # the parser tells of what cannot be read

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
        self._rehearsed.add(request_id)  # a server of ours has to know that it was greeted
        return record

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        if self._closed:
            for asked in self._asked.values():
                asked.set()

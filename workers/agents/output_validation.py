"""Structured outputs held against their schemas. No producer's schema holds up the worker and its other turns.

One whose cost shows is applied here. Any other one may hold a regular expression that never comes to an end, and
that nothing in the process could break off: it is applied in a process of its own, with a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from adapters.protocol.nesting import is_deeper
from adapters.protocol.output_schema import MOST_LEVELS, TOO_DEEP, is_plain, output_fault

_AT_ONCE: Final = 4  # processes: 20 MB each
_MOST_S: Final = 3  # of processor time: however busy the machine is, an honest schema needs a small part of it
_PATIENCE_S: Final = 120.0  # for that much of it
# -P: no module of the directory that the worker was started in is taken for ours.
_PROGRAM: Final = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
from adapters.protocol.output_schema import output_fault
json.dump(output_fault(*json.load(sys.stdin)), sys.stdout)
"""


class OutputValidator:
    """The checks of one worker, on its loop."""

    def __init__(self, most_s: int = _MOST_S) -> None:
        """`most_s` is how much processor time a check may take, in seconds."""
        self._most_s = most_s
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def fault(self, schema: Mapping[str, JsonValue], output: object) -> str | None:
        """What is wrong with a structured output; None: it is as the schema wants it."""
        if await asyncio.to_thread(is_deeper, output, MOST_LEVELS):
            return TOO_DEEP
        if is_plain(schema):
            return await asyncio.to_thread(output_fault, schema, output)
        question = json.dumps([schema, output]).encode()
        async with self._room:
            code, answer = await _asked_elsewhere(question, self._most_s)
        if code == 0:
            fault: str | None = json.loads(answer)
            return fault
        if code > 0:
            return "output_schema cannot be applied to it"
        return f"output_schema takes more than {self._most_s} s to apply; a pattern of it may try too many ways"


async def _asked_elsewhere(question: bytes, most_s: int) -> tuple[int, bytes]:
    """The exit code of a process that was asked, below 0 if it took too long; and its answer."""
    program = (sys.executable, "-P", "-c", _PROGRAM, str(most_s))
    process = await asyncio.create_subprocess_exec(
        *program, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    answer = b""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                answer, _ = await process.communicate(question)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return await process.wait(), answer

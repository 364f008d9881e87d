"""Validates structured outputs against their schemas. No producer's schema delays the worker and its other turns.

A schema of evident cost is applied here. Any other may contain a regular expression that never finishes and that
nothing in the process could interrupt: it is applied in a separate process, with a limit.
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
_MOST_S: Final = 3  # of CPU time: an honest schema needs a small part of it, however busy the machine is
_PATIENCE_S: Final = 120.0  # to get that much CPU time
# -P: import no modules from the directory that the worker was started in.
_PROGRAM: Final = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
from adapters.protocol.output_schema import output_fault
json.dump(output_fault(*json.load(sys.stdin)), sys.stdout)
"""


class OutputValidator:
    """Validator of one worker, on its loop."""

    def __init__(self, most_s: int = _MOST_S) -> None:
        """`most_s` limits the CPU time of a check, in seconds."""
        self._most_s = most_s
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def fault(self, schema: Mapping[str, JsonValue], output: object) -> str | None:
        """Return what is wrong with a structured output; None: it matches the schema."""
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
        return (
            f"output_schema takes more than {self._most_s} s to apply; one of its patterns may backtrack too much"
        )


async def _asked_elsewhere(question: bytes, most_s: int) -> tuple[int, bytes]:
    """Return the exit code of a process that validates, below 0 if it took too long; and its answer."""
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

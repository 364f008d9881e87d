"""The agent `scripted`: replays a recording of another agent, with its timing. For tests, demos and capacity runs.

A recording is an agent's output as it printed it. A line of the form `{"after_ms": 250, "line": "…"}` is printed
after that pause; any other line is printed at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.command import Command, Signal
from adapters.contract import Adapter, Capabilities, Exit, Health, Judgement, Session
from adapters.errors import InvalidRequest
from adapters.fold import Parser, TurnState
from adapters.request import TurnRequest, invalid
from adapters.usage import Usage

# Runs on the host, where nothing of ours is installed; SIGINT ends it as it ends any simple program.
_PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
path, speed, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
out = sys.stdout.buffer
for line in sys.stdin.buffer if path == "-" else open(path, "rb"):
    if line.startswith(b'{"after_ms":'):
        import json
        step = json.loads(line)
        time.sleep(step["after_ms"] / 1000 / speed)
        line = step["line"].encode() + b"\\n"
    out.write(line)
    out.flush()
sys.exit(code)
"""


class ScriptedOptions(BaseModel):
    """What `options` of a request may hold for the agent `scripted`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recording: str | None = None  # path of the recording on the host
    lines: tuple[str, ...] = ()  # or the recording itself
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0  # 2.0 halves every pause
    exit_code: Annotated[int, Field(ge=0, le=255)] = 0


class Scripted:
    """See `adapters.contract.Adapter`. `recorded` is the agent whose recordings it replays."""

    name = "scripted"
    capabilities = Capabilities(resume=True, structured_output=True, cost_cap=False, live_output_tokens=False)
    credentials = ()

    def __init__(self, recorded: Adapter, python: str = "python3") -> None:
        self._recorded = recorded
        self._python = python

    def check(self, request: TurnRequest) -> None:
        """See `Adapter.check`."""
        options = _options(request)
        if (options.recording is None) == (not options.lines):
            raise InvalidRequest("give either a path or `lines`", field="options.recording")

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        options = _options(request)
        recording = options.recording or "-"
        program = (self._python, "-I", "-S", "-c", _PROGRAM)
        return Command(
            argv=(*program, recording, str(options.speed), str(options.exit_code)),
            cwd=request.workspace,
            stdin="".join(f"{line}\n" for line in options.lines).encode(),
            forward_env=request.env,
            stop=(Signal("INT", 2.0), Signal("TERM", 2.0), Signal("KILL", 2.0)),
        )

    def parser(self) -> Parser:
        """See `Adapter.parser`."""
        return self._recorded.parser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """See `Adapter.judgement`."""
        return self._recorded.judgement(state, end)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """See `Adapter.session_usage`: a replay keeps no session."""
        return self._recorded.session_usage(lines, state)

    def probe(self) -> tuple[str, ...]:
        """See `Adapter.probe`."""
        return (self._python, "--version")

    def health(self, end: Exit, stdout: str) -> Health:
        """See `Adapter.health`."""
        if end.code == 0:
            return Health(True, stdout.removeprefix("Python").strip())
        return Health(False, problem=f"{self._python} is not there; the scripted agent needs Python on its host")


def _options(request: TurnRequest) -> ScriptedOptions:
    try:
        return ScriptedOptions.model_validate(request.options)
    except ValidationError as error:
        raise invalid(error, "options") from error

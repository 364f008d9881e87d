"""The agent `scripted`: replays a recording of another agent, with its timing. For tests, demos and capacity runs.

A recording is an agent's output, verbatim. A line that consists of `{"after_ms":250}` is not printed: it is a
pause before the next line, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from adapters.claude_code.adapter import ClaudeCode
from adapters.command import Command, Signal
from adapters.contract import Adapter, AgentConfig, Billing, Capabilities, Exit, Health, Judgement, Session
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.toolkit.options import AgentOptions
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage

# Runs on the host, where nothing of ours is installed, and must start within a millisecond or two. A signal during
# a pause ends the agent, as it ends any simple program.
_PROGRAM = r"""
/^\{"after_ms":[0-9.]+\}$/ {
    gsub(/[^0-9.]/, "")
    if (system("sleep " $0 / 1000 / speed) != 0) { code = 130; exit }
    next
}
{ print; fflush() }
END { exit code }
"""


class ScriptedOptions(AgentOptions):
    """Request options of the agent `scripted`."""

    recording: str | None = Field(default=None, description="Absolute path of the recording on the host.")
    lines: tuple[str, ...] = Field(default=(), description="The recording's lines, instead of a path.")
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=1.0, description="2.0 halves every pause."
    )
    exit_code: Annotated[int, Field(ge=0, le=255)] = Field(default=0, description="The agent's exit status.")


class ReplayAgent:
    """Adapter of the agent `scripted`. `recorded` is the agent whose recordings it replays."""

    name = "scripted"
    capabilities = Capabilities(
        resume=True,
        structured_output=True,
        cost_cap=False,
        live_output_tokens=False,
        plans=True,
        billing=frozenset({Billing.FREE}),
        task_types=frozenset({"replay"}),  # never chosen for real work
    )

    def __init__(self, recorded: Adapter, defaults: ScriptedOptions | None = None) -> None:
        self._recorded = recorded
        self._defaults = defaults or ScriptedOptions()

    @property
    def tools(self) -> frozenset[str]:
        """Return the tools of the recorded agent."""
        return self._recorded.tools

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return no names: the agent calls no API."""
        return ()

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest unless the options name one recording."""
        options = self._options(request)
        if (options.recording is None) == (not options.lines):
            raise InvalidRequest("set either a path or `lines`", field="options.recording")
        if options.recording is not None and not options.recording.startswith("/"):
            raise InvalidRequest("must be an absolute path on the host", field="options.recording")

    def build(self, request: TurnRequest, session: Session) -> Command:
        """Return the command for this attempt."""
        options = self._options(request)
        settings = ("-v", f"speed={options.speed}", "-v", f"code={options.exit_code}")
        return Command(
            argv=("awk", *settings, _PROGRAM, options.recording or "-"),
            cwd=request.workspace,
            stdin="".join(f"{line}\n" for line in options.lines).encode(),
            forward_env=request.env,
            stop=(Signal("INT", 2.0), Signal("TERM", 2.0), Signal("KILL", 2.0)),
        )

    def parser(self) -> Parser:
        """Return a parser of the recorded agent."""
        return self._recorded.parser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """Judge the attempt as the recorded agent's."""
        return self._recorded.judgement(state, end)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """Return the recorded agent's usage; a replay writes no session files."""
        return self._recorded.session_usage(lines, state)

    def price(self, model: str, tokens: Tokens) -> float | None:
        """Return the recorded agent's price in US dollars."""
        return self._recorded.price(model, tokens)

    def soft_stop(self, reason: str) -> bytes | None:
        """Return None: a replay has no soft stop."""
        return None

    def probe(self) -> tuple[str, ...]:
        """Return a command that checks whether awk is installed."""
        return ("awk", "BEGIN { exit 0 }")

    def health(self, end: Exit, stdout: str) -> Health:
        """Return the health read from the probe's outcome."""
        if end.code == 0:
            return Health(True)
        return Health(False, problem="awk not found; the scripted agent needs it on its host")

    def _options(self, request: TurnRequest) -> ScriptedOptions:
        return self._defaults.overridden(request.options)


def create(config: AgentConfig) -> ReplayAgent:
    """Create the adapter; it replays recordings of Claude Code."""
    return ReplayAgent(ClaudeCode(), ScriptedOptions.parse(config.options))

"""The agent `scripted`: replays a recording of another agent, with its timing. For tests, demos and capacity runs.

A recording is an agent's output as it printed it. A line that is nothing but `{"after_ms":250}` is not printed, it
is a pause before the next line, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from adapters.claude_code.adapter import create as recorded
from adapters.command import Command, Signal
from adapters.contract import Adapter, AgentConfig, Billing, Capabilities, Exit, Health, Judgement, Session
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.toolkit.options import AgentOptions
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage

# Runs on the host, where nothing of ours is installed, and has to be up within a millisecond or two. A pause that
# a signal cut short ends the agent, as it would end any simple program.
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
    """What `options` of a request may hold for the agent `scripted`."""

    recording: str | None = Field(default=None, description="Absolute path of the recording on the host.")
    lines: tuple[str, ...] = Field(default=(), description="Or the recording itself.")
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=1.0, description="2.0 halves every pause."
    )
    exit_code: Annotated[int, Field(ge=0, le=255)] = Field(default=0, description="What the agent exits with.")


class ReplayAgent:
    """See `adapters.contract.Adapter`. `recorded` is the agent whose recordings it replays."""

    name = "scripted"
    capabilities = Capabilities(
        resume=True,
        structured_output=True,
        cost_cap=False,
        live_output_tokens=False,
        plans=True,
        billing=frozenset({Billing.FREE}),
        task_types=frozenset({"replay"}),  # so that it is never chosen for work
    )

    def __init__(self, recorded: Adapter, defaults: ScriptedOptions | None = None) -> None:
        self._recorded = recorded
        self._defaults = defaults or ScriptedOptions()

    @property
    def tools(self) -> frozenset[str]:
        """See `Adapter.tools`."""
        return self._recorded.tools

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """See `Adapter.credentials`: it talks to nobody."""
        return ()

    def check(self, request: TurnRequest) -> None:
        """See `Adapter.check`."""
        options = self._options(request)
        if (options.recording is None) == (not options.lines):
            raise InvalidRequest("give either a path or `lines`", field="options.recording")
        if options.recording is not None and not options.recording.startswith("/"):
            raise InvalidRequest("must be an absolute path on the host", field="options.recording")

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
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
        """See `Adapter.parser`."""
        return self._recorded.parser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """See `Adapter.judgement`."""
        return self._recorded.judgement(state, end)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """See `Adapter.session_usage`: a replay keeps no session."""
        return self._recorded.session_usage(lines, state)

    def price(self, model: str, tokens: Tokens) -> float | None:
        """See `Adapter.price`."""
        return self._recorded.price(model, tokens)

    def soft_stop(self, reason: str) -> bytes | None:
        """See `Adapter.soft_stop`."""
        return None

    def probe(self) -> tuple[str, ...]:
        """See `Adapter.probe`."""
        return ("awk", "BEGIN { exit 0 }")

    def health(self, end: Exit, stdout: str) -> Health:
        """See `Adapter.health`."""
        if end.code == 0:
            return Health(True)
        return Health(False, problem="awk is not there; the scripted agent needs it on its host")

    def _options(self, request: TurnRequest) -> ScriptedOptions:
        return self._defaults.overridden(request.options)


def create(config: AgentConfig) -> ReplayAgent:
    """See `adapters.contract.AdapterFactory`. Its recordings are those of Claude Code."""
    return ReplayAgent(recorded(AgentConfig()), ScriptedOptions.parse(config.options))

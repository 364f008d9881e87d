"""The adapter `codex`: the Codex CLI, headless."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

from adapters.codex.judge import judge
from adapters.codex.options import CodexOptions, arguments, refuse_limits
from adapters.codex.parser import CodexParser
from adapters.codex.rollout import read_usage, session_files
from adapters.command import FILES, Command, Signal
from adapters.contract import (
    AgentConfig,
    Billing,
    Capabilities,
    Exit,
    Health,
    Judgement,
    LoginCheck,
    Session,
)
from adapters.protocol.request import TurnRequest
from adapters.toolkit.error_mapping import health_by_version
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage
from adapters.versions import MATRIX, Versions

_VERSIONS = Versions(("0.128.0", "0.140.0", "0.150.1", "0.169.0"), covers=MATRIX)
# Codex reads OPENAI_API_KEY only where config.toml names it as the `env_key` of a provider.
_LOGIN = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY")
_SCHEMA = "output-schema.json"
# With these in its environment, Codex assumes that another Codex started it.
_NESTED = ("CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_SESSION_ID", "CODEX_THREAD_ID")


class Codex:
    """Adapter of the agent `codex`. One instance serves all turns; it contains only configuration."""

    name = "codex"
    capabilities = Capabilities(
        resume=True,
        structured_output=True,
        cost_cap=False,
        live_output_tokens=False,
        names_sessions=True,
        plans=True,
        billing=frozenset({Billing.API, Billing.SUBSCRIPTION}),
        versions=_VERSIONS,
        api_credentials=frozenset({"CODEX_API_KEY"}),
        login=LoginCheck(
            ("login", "status"), since="0.128.0", remedy="run `codex login` there, or set CODEX_API_KEY"
        ),
    )
    # By the type of their items in its stream (0.169.0). Tools of MCP servers can have any name.
    tools = frozenset({"collab_tool_call", "command_execution", "file_change", "web_search"})

    def __init__(self, config: AgentConfig) -> None:
        """Raise InvalidRequest for invalid options."""
        self.command = config.command or "codex"
        self.defaults = CodexOptions.parse(config.options)
        self.prices = config.prices
        # On SIGINT, Codex stops its tools and records the interruption; SIGTERM ends it at once.
        grace = config.stop_grace_s
        self.stop = (Signal("INT", grace), Signal("TERM", grace), Signal("KILL", grace))

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of its login variables."""
        return _LOGIN

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest if Codex cannot run the request."""
        self._options(request)
        refuse_limits(request.max_total_tokens, request.max_cost_usd)

    def build(self, request: TurnRequest, session: Session) -> Command:
        """Return the command for this attempt."""
        options = self._options(request)
        if request.plan:
            options = options.model_copy(update={"sandbox": "read-only"})
        files = {} if request.output_schema is None else {_SCHEMA: orjson.dumps(request.output_schema)}
        return Command(
            argv=(self.command, *_arguments(request, options, session)),
            cwd=request.workspace,
            stdin=request.prompt.encode(),
            forward_env=request.env,
            unset_env=_NESTED,
            stop=self.stop,
            session_files=session_files(session.session_id),
            files=files,
        )

    def parser(self) -> Parser:
        """Return a fresh parser."""
        return CodexParser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """Judge a finished attempt."""
        return judge(state, end)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """Return the attempt's usage from its rollouts."""
        return read_usage(lines, state, self.prices)

    def price(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost of these tokens in US dollars; None if unknown."""
        return self.prices.cost_usd(model, tokens)

    def soft_stop(self, reason: str) -> bytes | None:
        """Return None: Codex has no soft stop."""
        return None

    def probe(self) -> tuple[str, ...]:
        """Return the version command."""
        return (self.command, "--version")

    def health(self, end: Exit, stdout: str) -> Health:
        """Return the health read from the probe's outcome."""
        return health_by_version(end, stdout, self.command, "Codex")

    def _options(self, request: TurnRequest) -> CodexOptions:
        return self.defaults.overridden(request.options)


def _arguments(request: TurnRequest, options: CodexOptions, session: Session) -> list[str]:
    given = ["exec", "--json", "--skip-git-repo-check", f"--cd={request.workspace}", *arguments(options)]
    if request.output_schema is not None:
        given.append(f"--output-schema={FILES}/{_SCHEMA}")
    # A lone dash: read the prompt from stdin.
    return [*given, *(["resume", session.session_id, "-"] if session.resume else ["-"])]

"""The adapter `codex`: the Codex CLI, headless."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

from adapters.codex.judge import judge
from adapters.codex.options import CodexOptions, arguments, refuse_limits
from adapters.codex.parser import CodexParser
from adapters.codex.rollout import read_usage, session_files
from adapters.codex.tools import TOOLS
from adapters.codex.versions import VERSIONS
from adapters.command import SPOOL, Command, Signal
from adapters.contract import AgentConfig, Billing, Capabilities, Exit, Health, Judgement, Session
from adapters.protocol.request import TurnRequest
from adapters.toolkit.error_mapping import health_by_version
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage

# OPENAI_API_KEY counts where config.toml names it as the `env_key` of a provider, and only there.
_LOGIN = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY")
_SCHEMA = "output-schema.json"
# A Codex that finds these in its environment takes itself for a command of another one.
_NESTED = ("CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_SESSION_ID", "CODEX_THREAD_ID")


class Codex:
    """See `adapters.contract.Adapter`. One instance serves all turns; it holds only configuration."""

    name = "codex"
    capabilities = Capabilities(
        resume=True,
        structured_output=True,
        cost_cap=False,
        live_output_tokens=False,
        names_sessions=True,
        plans=True,
        billing=frozenset({Billing.API, Billing.SUBSCRIPTION}),
        versions=VERSIONS,
        api_credentials=frozenset({"CODEX_API_KEY"}),
    )
    tools = TOOLS

    def __init__(self, config: AgentConfig) -> None:
        self.command = config.command or "codex"
        self.defaults = CodexOptions.parse(config.options)
        self.prices = config.prices
        # SIGINT has it end its tools and write down that it was interrupted; SIGTERM ends it as it is.
        grace = config.stop_grace_s
        self.stop = (Signal("INT", grace), Signal("TERM", grace), Signal("KILL", grace))

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """See `Adapter.credentials`."""
        return _LOGIN

    def check(self, request: TurnRequest) -> None:
        """See `Adapter.check`."""
        self._options(request)
        refuse_limits(request.max_total_tokens, request.max_cost_usd)

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
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
        """See `Adapter.parser`."""
        return CodexParser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """See `Adapter.judgement`."""
        return judge(state, end)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """See `Adapter.session_usage`."""
        return read_usage(lines, state, self.prices)

    def price(self, model: str, tokens: Tokens) -> float | None:
        """See `Adapter.price`."""
        return self.prices.cost_usd(model, tokens)

    def soft_stop(self, reason: str) -> bytes | None:
        """See `Adapter.soft_stop`."""
        return None

    def probe(self) -> tuple[str, ...]:
        """See `Adapter.probe`."""
        return (self.command, "--version")

    def health(self, end: Exit, stdout: str) -> Health:
        """See `Adapter.health`."""
        return health_by_version(end, stdout, self.command, "Codex")

    def _options(self, request: TurnRequest) -> CodexOptions:
        return self.defaults.overridden(request.options)


def create(config: AgentConfig) -> Codex:
    """The adapter, as an operator has configured it. Raises InvalidRequest for options that make no sense."""
    return Codex(config)


def _arguments(request: TurnRequest, options: CodexOptions, session: Session) -> list[str]:
    given = ["exec", "--json", "--skip-git-repo-check", f"--cd={request.workspace}", *arguments(options)]
    if request.output_schema is not None:
        given.append(f"--output-schema={SPOOL}/{_SCHEMA}")
    # A lone dash: the prompt is what comes on stdin.
    return [*given, *(["resume", session.session_id, "-"] if session.resume else ["-"])]

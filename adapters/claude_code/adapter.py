"""The adapter `claude-code`: the Claude Code CLI, headless."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import orjson

from adapters.claude_code.account import told_usage
from adapters.claude_code.judge import judge
from adapters.claude_code.options import ClaudeCodeOptions, flags
from adapters.claude_code.parser import ClaudeCodeParser
from adapters.claude_code.prices import cost_usd
from adapters.claude_code.session_files import read_usage, session_files
from adapters.claude_code.soft_stop import SETTINGS, stop_file
from adapters.claude_code.subagents import all_answered
from adapters.claude_code.tools import TOOLS
from adapters.claude_code.versions import VERSIONS
from adapters.command import Command, Signal
from adapters.contract import AgentConfig, Billing, Capabilities, Exit, Health, Judgement, Session
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.toolkit.error_mapping import health_by_version
from adapters.toolkit.options import MAX_ARGUMENT_BYTES
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage

_LOGIN = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN")
# With these switches it logs in elsewhere; without them, a worker's cloud credentials are no business of its own.
_PROVIDERS: dict[str, tuple[str, ...]] = {
    "CLAUDE_CODE_USE_BEDROCK": (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_PROFILE",
        "AWS_REGION",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "ANTHROPIC_VERTEX_PROJECT_ID",
        "CLOUD_ML_REGION",
    ),
}
_ENVIRONMENT = {
    "DISABLE_AUTOUPDATER": "1",  # a fleet's binary must not change under its turns
    # Nobody looks at a terminal's title; the request for it may be under way at the end, and stand in no account.
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
}
# A Claude Code that finds these in its environment takes itself for a part of another session.
_NESTED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID")


class ClaudeCode:
    """See `adapters.contract.Adapter`. One instance serves all turns; it holds only configuration."""

    name = "claude-code"
    _options_type: type[ClaudeCodeOptions] = ClaudeCodeOptions
    capabilities = Capabilities(
        resume=True,
        structured_output=True,
        cost_cap=True,
        live_output_tokens=True,
        plans=True,
        billing=frozenset({Billing.API, Billing.SUBSCRIPTION}),
        versions=VERSIONS,
        api_credentials=frozenset({"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", *_PROVIDERS}),
    )
    tools = TOOLS

    def __init__(self, config: AgentConfig = AgentConfig()) -> None:  # noqa: B008 - immutable
        """Raises InvalidRequest for options that make no sense."""
        self.command = config.command or "claude"
        self.defaults = self._options_type.parse(config.options)
        # SIGINT lets it end its tools and print its result; SIGTERM ends it without one.
        grace = config.stop_grace_s
        self.stop = (Signal("INT", grace), Signal("TERM", grace), Signal("KILL", grace))

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """See `Adapter.credentials`."""
        chosen = [switch for switch in _PROVIDERS if environ.get(switch)]
        return (*_LOGIN, *chosen, *(name for switch in chosen for name in _PROVIDERS[switch]))

    def check(self, request: TurnRequest) -> None:
        """See `Adapter.check`."""
        self._options(request).check(request.session_id)
        if request.output_schema is not None and len(_schema(request)) > MAX_ARGUMENT_BYTES:
            raise InvalidRequest(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes as JSON", field="output_schema")

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        options = self._options(request)
        environment = dict(_ENVIRONMENT)
        if options.max_api_retries is not None:
            environment["CLAUDE_CODE_MAX_RETRIES"] = str(options.max_api_retries)
        arguments = ["-p", *turn_flags(request, options, session)]
        if request.deadline is not None or request.max_total_tokens is not None:
            arguments.append(f"--settings={SETTINGS}")  # others need not pay for a look before every tool call
        return Command(
            argv=(self.command, *arguments),
            cwd=request.workspace,
            stdin=prompt_text(request.prompt, options).encode(),
            env=environment,
            forward_env=request.env,
            unset_env=_NESTED,
            stop=self.stop,
            session_files=session_files(session.session_id) if options.session_persistence else None,
        )

    def parser(self) -> Parser:
        """See `Adapter.parser`."""
        return ClaudeCodeParser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """See `Adapter.judgement`."""
        return judge(state, end)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """See `Adapter.session_usage`."""
        told = told_usage(state)
        if not told.source.observed:
            return read_usage(lines, state)
        # It counts as the API bills; the files tell only whether there was more.
        return replace(told, complete=told.complete and all_answered(lines, state.delegated))

    def price(self, model: str, tokens: Tokens) -> float | None:
        """See `Adapter.price`."""
        return cost_usd(model, tokens)

    def soft_stop(self, reason: str) -> bytes | None:
        """See `Adapter.soft_stop`."""
        return stop_file(reason)

    def probe(self) -> tuple[str, ...]:
        """See `Adapter.probe`."""
        return (self.command, "--version")

    def health(self, end: Exit, stdout: str) -> Health:
        """See `Adapter.health`."""
        return health_by_version(end, stdout, self.command, "Claude Code")

    def _options(self, request: TurnRequest) -> ClaudeCodeOptions:
        options = self.defaults.overridden(request.options)
        if not request.plan:
            return options
        # What would change anything has to be asked for, and nobody is there to be asked; reading is free.
        return options.model_copy(update={"permission_mode": "default", "allowed_tools": None})


def create(config: AgentConfig) -> ClaudeCode:
    """See `adapters.contract.AdapterFactory`."""
    return ClaudeCode(config)


def turn_flags(request: TurnRequest, options: ClaudeCodeOptions, session: Session) -> list[str]:
    """The flags that a turn has, however its prompt reaches the agent."""
    arguments = ["--output-format", "stream-json", "--verbose"]
    arguments += ["--resume" if session.resume else "--session-id", session.session_id]
    caps = [cap for cap in (options.max_budget_usd, request.max_cost_usd) if cap is not None]
    arguments += flags(options.model_copy(update={"max_budget_usd": min(caps, default=None)}))
    if request.max_total_tokens is not None:
        arguments.append("--include-partial-messages")  # the only way to see output tokens live
    if request.output_schema is not None:
        arguments.append(f"--json-schema={_schema(request)}")
    return arguments


def _schema(request: TurnRequest) -> str:
    return orjson.dumps(request.output_schema).decode()


def prompt_text(prompt: str, options: ClaudeCodeOptions) -> str:
    """The prompt as the agent has to be given it."""
    # It takes a prompt with a leading / for a command, on stdin too.
    return "\n" + prompt if prompt.startswith("/") and not options.slash_command else prompt

"""The adapter `claude-code`: the Claude Code CLI, headless."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import orjson

from adapters.claude_code.account import greater, told_usage
from adapters.claude_code.judge import judge
from adapters.claude_code.options import ClaudeCodeOptions, flags
from adapters.claude_code.parser import ClaudeCodeParser
from adapters.claude_code.prices import cost_usd
from adapters.claude_code.session_files import read_usage, session_files
from adapters.claude_code.soft_stop import SETTINGS, stop_file
from adapters.claude_code.subagents import all_answered
from adapters.claude_code.tools import TOOLS
from adapters.command import Command, Signal
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
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.toolkit.error_mapping import health_by_version
from adapters.toolkit.options import MAX_ARGUMENT_BYTES
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage
from adapters.versions import MATRIX, Versions

# Versions without a failing cell in the table of docs/adapters.md (`make test-agents`). 1.0.128 and 2.0.0 pass,
# too, but lack structured output.
VERSIONS = Versions(("2.0.76", "2.1.0", "2.1.32", "2.1.69", "2.1.105", "2.1.197", "2.1.330"), covers=MATRIX)
_LOGIN = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN")
# These switches select another login; only then does it get the worker's cloud credentials.
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
    # Joins the pieces of an answer that we do not read anyway to one line a second (2.1.330).
    "CLAUDE_CODE_STREAM_EVENT_HOLD_MS": "1000",
    # Headless, a terminal title is useless, and its request may still be running at the end and be reported
    # nowhere.
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
}
# With these in its environment, Claude Code assumes that it is part of another session.
_NESTED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID")


class ClaudeCode:
    """Adapter of the agent `claude-code`. One instance serves all turns; it contains only configuration."""

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
        login=LoginCheck(
            ("auth", "status"), since="2.1.40", remedy="run `claude auth login` there, or set ANTHROPIC_API_KEY"
        ),
        root_variable="IS_SANDBOX",  # in the permission mode bypassPermissions, the default
    )
    tools = TOOLS

    def __init__(self, config: AgentConfig = AgentConfig()) -> None:  # noqa: B008 - immutable
        """Raise InvalidRequest for invalid options."""
        self.command = config.command or "claude"
        self.defaults = self._options_type.parse(config.options)
        # On SIGINT, it stops its tools and prints its result; on SIGTERM, it exits without one.
        grace = config.stop_grace_s
        self.stop = (Signal("INT", grace), Signal("TERM", grace), Signal("KILL", grace))

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of its login variables."""
        chosen = [switch for switch in _PROVIDERS if environ.get(switch)]
        return (*_LOGIN, *chosen, *(name for switch in chosen for name in _PROVIDERS[switch]))

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest if Claude Code cannot run the request."""
        self._options(request).check(request.session_id)
        if request.output_schema is not None and len(_schema(request)) > MAX_ARGUMENT_BYTES:
            raise InvalidRequest(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes as JSON", field="output_schema")

    def build(self, request: TurnRequest, session: Session) -> Command:
        """Return the command for this attempt."""
        options = self._options(request)
        environment = dict(_ENVIRONMENT)
        if options.max_api_retries is not None:
            environment["CLAUDE_CODE_MAX_RETRIES"] = str(options.max_api_retries)
        arguments = ["-p", *turn_flags(request, options, session)]
        if request.deadline is not None or request.max_total_tokens is not None:
            arguments.append(f"--settings={SETTINGS}")  # other turns save the check before every tool call
        return Command(
            argv=(self.command, *arguments),
            cwd=request.workspace,
            stdin=prompt_text(request.prompt, options).encode(),
            env=environment,
            forward_env=request.env,
            unset_env=_NESTED,
            stop=self.stop,
            session_files=session_files(session.session_id) if options.session_persistence else None,
            state=(".claude", ".claude.json"),
        )

    def parser(self) -> Parser:
        """Return a fresh parser."""
        return ClaudeCodeParser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """Judge a finished attempt."""
        return judge(state, end)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """Return the attempt's usage from its report, checked against its messages, or from the messages."""
        records = list(lines)
        told, read = told_usage(state), read_usage(records, state)
        if not told.source.observed:
            return read
        # The report counts as the API bills; the messages only show whether there was more.
        by_model = greater(read.by_model, told.by_model)
        if by_model != told.by_model:
            return replace(read, by_model=by_model)
        return replace(told, complete=told.complete and all_answered(records, state.delegated))

    def price(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost of these tokens in US dollars; None if unknown."""
        return cost_usd(model, tokens)

    def soft_stop(self, reason: str) -> bytes | None:
        """Return the content of the stop file, which its hook prints."""
        return stop_file(reason)

    def probe(self) -> tuple[str, ...]:
        """Return the version command."""
        return (self.command, "--version")

    def health(self, end: Exit, stdout: str) -> Health:
        """Return the health read from the probe's outcome."""
        return health_by_version(end, stdout, self.command, "Claude Code")

    def _options(self, request: TurnRequest) -> ClaudeCodeOptions:
        options = self.defaults.overridden(request.options)
        if not request.plan:
            return options
        # Anything that makes changes needs approval, which a headless agent cannot get; reading does not.
        return options.model_copy(update={"permission_mode": "default", "allowed_tools": None})


def turn_flags(request: TurnRequest, options: ClaudeCodeOptions, session: Session) -> list[str]:
    """Return the flags of a turn, except those for its input."""
    # Without partial messages, it does not print how many output tokens an answer has.
    arguments = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    arguments += ["--resume" if session.resume else "--session-id", session.session_id]
    caps = [cap for cap in (options.max_budget_usd, request.max_cost_usd) if cap is not None]
    arguments += flags(options.model_copy(update={"max_budget_usd": min(caps, default=None)}))
    if request.output_schema is not None:
        arguments.append(f"--json-schema={_schema(request)}")
    return arguments


def _schema(request: TurnRequest) -> str:
    return orjson.dumps(request.output_schema).decode()


def prompt_text(prompt: str, options: ClaudeCodeOptions) -> str:
    """Return the prompt, escaped unless it is a slash command."""
    # Claude Code treats a prompt with a leading / as a command, even on stdin.
    return "\n" + prompt if prompt.startswith("/") and not options.slash_command else prompt

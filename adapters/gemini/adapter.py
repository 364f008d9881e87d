"""The adapter `gemini`: the Gemini CLI, headless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from adapters.command import Command, Signal
from adapters.contract import AgentConfig, Billing, Capabilities, Exit, Health, Judgement, Session
from adapters.errors import InvalidRequest
from adapters.gemini.judge import judge, told_usage
from adapters.gemini.options import GeminiOptions, flags
from adapters.gemini.parser import GeminiParser
from adapters.gemini.session_files import read_usage, session_files
from adapters.gemini.tools import TOOLS
from adapters.protocol.request import TurnRequest
from adapters.toolkit.error_mapping import health_by_version
from adapters.turn_state import Parser, TurnState
from adapters.usage import Tokens, Usage
from adapters.versions import MATRIX, Unsupported, Versions

# Versions without a failing cell in the table of docs/adapters.md (`make test-agents`).
_VERSIONS = Versions(
    ("0.41.0", "0.45.2", "0.52.0", "0.61.0"),
    covers=tuple(row for row in MATRIX if row != "structured output"),
    # According to its --help, 0.39.0, 0.40.1 and older lack it, 0.41.0 has it.
    unsupported=(Unsupported("it has no --session-id, so every turn fails", mended="0.41.0"),),
)
_LOGIN = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL")
# These switches select another login; only then does it get the worker's cloud credentials.
_PROVIDERS: dict[str, tuple[str, ...]] = {
    "GOOGLE_GENAI_USE_VERTEXAI": (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_VERTEX_BASE_URL",
    ),
    "GOOGLE_GENAI_USE_GCA": ("GOOGLE_CLOUD_ACCESS_TOKEN", "GOOGLE_CLOUD_PROJECT"),
    "GEMINI_CLI_USE_COMPUTE_ADC": ("GOOGLE_CLOUD_PROJECT",),
}
_MAX_BYTES = 8 * 1024 * 1024  # it truncates its standard input there (0.61.0)
# A reference to a file, a resource or a subagent: an @ without a backslash, followed by a path. If there is no
# such file, it searches the workspace for one with a similar name.
_REFERENCE = re.compile(r"(?<!\\)@(?=[^ \t\n\r,;!?()\[\]{}.]|\.[^ \t\n\r])")
_ENVIRONMENT = {
    "GEMINI_CLI_TRUST_WORKSPACE": "true",  # headless, it refuses to start in an untrusted workspace
    "GEMINI_CLI_NO_RELAUNCH": "true",  # otherwise a parent process swallows our signals
}


class Gemini:
    """Adapter of the agent `gemini`. One instance serves all turns; it contains only configuration."""

    name = "gemini"
    capabilities = Capabilities(
        resume=True,
        structured_output=False,
        cost_cap=False,
        live_output_tokens=False,
        plans=True,
        billing=frozenset(Billing),
        versions=_VERSIONS,
        api_credentials=frozenset({"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"}),
        max_context_tokens=1_048_576,
    )
    tools = TOOLS

    def __init__(self, config: AgentConfig) -> None:
        """Raise InvalidRequest for invalid options."""
        self.command = config.command or "gemini"
        self.defaults = GeminiOptions.parse(config.options)
        self._prices = config.prices
        # On SIGINT and SIGTERM it exits at once, without a result, and leaves its tools running: they receive
        # SIGTERM, too. Its session files record what was billed.
        self.stop = (Signal("TERM", config.stop_grace_s), Signal("KILL", config.stop_grace_s))

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of its login variables."""
        chosen = [switch for switch in _PROVIDERS if environ.get(switch)]
        return (*_LOGIN, *chosen, *(name for switch in chosen for name in _PROVIDERS[switch]))

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest if the Gemini CLI cannot run the request."""
        options = self._options(request)
        if request.output_schema is not None:
            raise InvalidRequest("the Gemini CLI does not support structured output", field="output_schema")
        size = len(_prompt(request, options))
        if size > _MAX_BYTES:
            raise InvalidRequest(
                f"is {size:,} bytes long; the Gemini CLI reads at most {_MAX_BYTES:,}. Put it in a file",
                field="prompt",
            )

    def build(self, request: TurnRequest, session: Session) -> Command:
        """Return the command for this attempt."""
        options = self._options(request)
        if request.plan:  # no tools that write; its own plan mode would write the plan to a file
            options = options.model_copy(update={"approval_mode": "default", "allowed_tools": None})
        entering = f"--{'resume' if session.resume else 'session-id'}={session.session_id}"
        return Command(
            argv=(self.command, "--output-format=stream-json", entering, *flags(options)),
            cwd=request.workspace,
            stdin=_prompt(request, options),
            env=_ENVIRONMENT,
            forward_env=request.env,
            stop=self.stop,
            session_files=session_files(session.session_id),
        )

    def parser(self) -> Parser:
        """Return a fresh parser."""
        return GeminiParser()

    def judgement(self, state: TurnState, end: Exit) -> Judgement:
        """Judge a finished attempt."""
        return judge(state, end, self._prices)

    def session_usage(self, lines: Iterable[bytes], state: TurnState) -> Usage:
        """Return the attempt's usage from its report and its session files."""
        return read_usage(lines, state, self._prices, told_usage(state, Exit(None), self._prices))

    def price(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost of these tokens in US dollars; None if unknown."""
        return self._prices.request_cost_usd(model, tokens)

    def soft_stop(self, reason: str) -> bytes | None:
        """Return None: the Gemini CLI has no soft stop."""
        return None

    def probe(self) -> tuple[str, ...]:
        """Return the version command."""
        return (self.command, "--version")

    def health(self, end: Exit, stdout: str) -> Health:
        """Return the health read from the probe's outcome."""
        return health_by_version(end, stdout, self.command, "the Gemini CLI")

    def _options(self, request: TurnRequest) -> GeminiOptions:
        return self.defaults.overridden(request.options)


def _prompt(request: TurnRequest, options: GeminiOptions) -> bytes:
    return encoded(request.prompt, slash_command=options.slash_command, file_references=options.file_references)


def encoded(prompt: str, *, slash_command: bool, file_references: bool) -> bytes:
    """Return the prompt for standard input, escaped so that the Gemini CLI treats it as plain text."""
    if not file_references:
        prompt = _REFERENCE.sub(r"\\@", prompt)
    if prompt.startswith("/") and not slash_command:
        prompt = "\n" + prompt
    return prompt.encode()

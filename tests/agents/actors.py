"""One version of an agent with all that it needs: its environment, its API, and how its requests look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.agents.scenes import FIRST, OUTPUT, Scene, Speech, first_replies, replies
from tests.gemini_api import GeminiApi
from tests.gemini_api.cli import gemini_environment, write_settings
from tests.model_api import Bill, Gate, HttpError, ModelApi, Reply, Script, Text, ToolUse, Usage
from tests.model_api import replies as said
from tests.model_api.cli import claude_environment
from tests.openai_api import OpenAiApi, codex_environment, shell

_SCHEMA_USED = Usage(100, 20, 30, 4)
_ASIDE = Reply((Text('{"title": "scripted"}'),), Usage(410, 23, 1200, 90))  # no sum is right without it
_JSON = Reply((Text('{"n": 3}'),), _SCHEMA_USED)


class Api(Protocol):
    """What all scripted APIs have."""

    @property
    def base_url(self) -> str: ...

    def bills(self) -> dict[str, Bill]: ...

    def gate(self, name: str) -> Gate: ...

    def wait_until_idle(self, script: str, timeout_s: float = ...) -> Bill: ...


@dataclass(frozen=True, slots=True)
class Actor:
    """An agent on its scripted API."""

    api: Api
    environment: dict[str, str]
    options: dict[str, Any]  # of all its requests
    speech: Speech


Cast = Callable[[Path], AbstractContextManager[Actor]]

_CLAUDE = Speech(
    shell=said.bash,
    output=Reply((ToolUse("StructuredOutput", {**OUTPUT}),), _SCHEMA_USED),
    refused=said.invalid_request("no"),
    unauthorized=said.unauthorized(),
    limited=said.rate_limited(1),
    cut_after=4,
)
_CODEX = Speech(
    shell=shell,
    output=_JSON,
    refused=HttpError(400, "invalid_request_error", "no"),
    unauthorized=HttpError(401, "invalid_request_error", "Incorrect API key provided: test-key."),
    limited=HttpError(429, "rate_limit_exceeded", "Rate limit reached. Please try again in 1s."),
    cut_after=1,
)
_GEMINI = Speech(
    shell=lambda command: ToolUse("run_shell_command", {"command": command, "description": "scripted"}),
    output=_JSON,
    refused=HttpError(400, "INVALID_ARGUMENT", "no"),
    unauthorized=HttpError(401, "UNAUTHENTICATED", "API keys are not supported by this API."),
    limited=HttpError(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    cut_after=1,
    caches=False,
)


def key(script: str) -> str:
    """The API key by which Claude Code's requests are told apart, those beside the conversation, too."""
    return f"test-key-{script}"


def _scripts(speech: Speech, *, keys: bool = False) -> Iterator[Script]:
    for name, answers in [*((scene, replies(scene, speech)) for scene in Scene), (FIRST, first_replies(speech))]:
        yield Script(name, answers, key=key(name) if keys else None, side_reply=_ASIDE)


@contextmanager
def _claude(home: Path) -> Iterator[Actor]:
    with ModelApi(*_scripts(_CLAUDE, keys=True)) as api:
        environment = claude_environment(api.base_url, home, max_retries=1)
        yield Actor(api, environment, {"model": "claude-sonnet-4-5"}, _CLAUDE)


@contextmanager
def _codex(home: Path) -> Iterator[Actor]:
    with OpenAiApi(*_scripts(_CODEX)) as api:
        environment = codex_environment(api.base_url, home)
        yield Actor(api, environment, {"sandbox": "danger-full-access"}, _CODEX)


@contextmanager
def _gemini(home: Path) -> Iterator[Actor]:
    with GeminiApi(*_scripts(_GEMINI)) as api:
        write_settings(home)
        environment = gemini_environment(api.base_url, home)
        yield Actor(api, environment, {"model": "gemini-2.5-pro"}, _GEMINI)


ACTORS: dict[str, Cast] = {"claude-code": _claude, "codex": _codex, "gemini": _gemini}

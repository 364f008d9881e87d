"""One version of an agent with all that it needs: its environment, its API, and how its requests look."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tests.fakes.gemini_api import GeminiApi
from tests.fakes.gemini_api.cli import gemini_environment, write_settings
from tests.fakes.model_api import Bill, Gate, HttpError, ModelApi, Reply, Script, Text, ToolUse, Usage
from tests.fakes.model_api import replies as said
from tests.fakes.model_api.cli import claude_environment
from tests.fakes.openai_api import OpenAiApi, codex_environment, shell
from tests.fakes.openai_api.memories import leave_an_earlier_session
from tests.tools.agents.parts import Options, Part, Parts, one_after_another, parts_of
from tests.tools.agents.scenes import OUTPUT, Scene, Speech, first_replies, replies

_SCHEMA_USED = Usage(100, 20, 30, 4)
# To whatever is asked beside the conversation, in the words of all who ask. No sum is right without it.
_ASIDE = Usage(410, 23, 1200, 90)
_SAID_BY_CLAUDE = {"title": "scripted"}
_SAID_BY_CODEX = {"raw_memory": "scripted", "rollout_summary": "scripted", "rollout_slug": "scripted"}
_SAID_BY_GEMINI = {
    "reasoning": "scripted", "model_choice": "flash",  # of routing
    "complexity_reasoning": "scripted", "complexity_score": 10,
    "next_speaker": "user",
    "explanation": "scripted", "search": "one", "replace": "two",  # of an edit that fits nowhere
    "unproductive_state_analysis": "scripted", "unproductive_state_confidence": 0.1,  # of a loop
}  # fmt: skip
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
    credential: str  # the variable that holds its API key, by which the API finds the script
    options: Options  # of all its requests
    speech: Speech
    beside: Mapping[Scene, Parts] = field(default_factory=dict)  # the turns in which it asks for more
    settings: Mapping[str, str] = field(default_factory=dict)  # files of its workspace there

    def parts(self, scene: Scene) -> Parts:
        """Return the turns of a scene."""
        return parts_of(scene, self.beside)


Cast = Callable[[Path], AbstractContextManager[Actor]]

_SEARCH = ToolUse("WebSearch", {"query": "anything"})
_CLAUDE = Speech(
    shell=said.bash,
    output=Reply((ToolUse("StructuredOutput", {**OUTPUT}),), _SCHEMA_USED),
    refused=said.invalid_request("no"),
    unauthorized=said.unauthorized(),
    limited=said.rate_limited(1),
    cut_after=4,
    beside=(_SEARCH,),
    beside_killed=(_SEARCH,),
)
# Less than its first answer has used: it makes the conversation shorter, by itself or by its API.
_COMPACTING: Options = {"model_auto_compact_token_limit": 4000}
_COMPACTING_REMOTELY: Options = {**_COMPACTING, "model_providers.scripted.name": "OpenAI"}
_CODEX_BESIDE: dict[Scene, Parts] = {
    scene: {
        scene: Part({"config": _COMPACTING}),
        f"{scene}-remote": Part({"config": _COMPACTING_REMOTELY}),
    }
    for scene in (Scene.BESIDE, Scene.KILL_BESIDE)
}
_CODEX = Speech(
    shell=shell,
    output=_JSON,
    refused=HttpError(400, "invalid_request_error", "no"),
    unauthorized=HttpError(401, "invalid_request_error", "Incorrect API key provided: test-key."),
    limited=HttpError(429, "rate_limit_exceeded", "Rate limit reached. Please try again in 1s."),
    cut_after=1,
)
_EDIT: Options = {"file_path": "note", "instruction": "count on", "old_string": "three", "new_string": "two"}
_ROUTED: Options = {"model": "auto"}
_GEMINI_BESIDE: dict[Scene, Parts] = {
    Scene.BESIDE: one_after_another(Scene.BESIDE, _ROUTED),
    Scene.KILL_BESIDE: {
        **one_after_another(Scene.KILL_BESIDE),
        **one_after_another(f"{Scene.KILL_BESIDE}-auto", _ROUTED),
    },
}
_GEMINI_SETTINGS = {
    # A part of 1,048,576 tokens that is less than its first answer has used.
    "model": {"skipNextSpeakerCheck": False, "compressionThreshold": 0.003},
    "tools": {"disableLLMCorrection": False},
}
_GEMINI = Speech(
    shell=lambda command: ToolUse("run_shell_command", {"command": command, "description": "scripted"}),
    output=_JSON,
    refused=HttpError(400, "INVALID_ARGUMENT", "no"),
    unauthorized=HttpError(401, "UNAUTHENTICATED", "API keys are not supported by this API."),
    limited=HttpError(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    cut_after=1,
    caches=False,
    beside=(ToolUse("replace", _EDIT),),
)


def key(script: str) -> str:
    """The API key by which an agent's requests are told apart, those beside the conversation, too."""
    return f"test-key-{script}"


def _scripts(speech: Speech, aside: Mapping[str, Any], beside: Mapping[Scene, Parts]) -> Iterator[Script]:
    reply = Reply((Text(json.dumps(aside)),), _ASIDE if speech.caches else replace(_ASIDE, cache_creation=0))
    for scene in Scene:
        for name, part in parts_of(scene, beside).items():
            answers = first_replies(speech) if part.opens else replies(scene, speech)
            yield Script(name, answers, key=key(name), side_reply=reply)


@contextmanager
def _claude(home: Path) -> Iterator[Actor]:
    with ModelApi(*_scripts(_CLAUDE, _SAID_BY_CLAUDE, {})) as api:
        environment = claude_environment(api.base_url, home, max_retries=1)
        yield Actor(api, environment, "ANTHROPIC_API_KEY", {"model": "claude-sonnet-4-5"}, _CLAUDE)


@contextmanager
def _codex(home: Path) -> Iterator[Actor]:
    with OpenAiApi(*_scripts(_CODEX, _SAID_BY_CODEX, _CODEX_BESIDE)) as api:
        environment = codex_environment(api.base_url, home)
        leave_an_earlier_session(home)
        options = {"sandbox": "danger-full-access"}
        yield Actor(api, environment, "CODEX_API_KEY", options, _CODEX, _CODEX_BESIDE)


@contextmanager
def _gemini(home: Path) -> Iterator[Actor]:
    with GeminiApi(*_scripts(_GEMINI, _SAID_BY_GEMINI, _GEMINI_BESIDE)) as api:
        write_settings(home)
        environment = gemini_environment(api.base_url, home)
        options, settings = {"model": "gemini-2.5-pro"}, {".gemini/settings.json": json.dumps(_GEMINI_SETTINGS)}
        yield Actor(api, environment, "GEMINI_API_KEY", options, _GEMINI, _GEMINI_BESIDE, settings)


ACTORS: dict[str, Cast] = {"claude-code": _claude, "codex": _codex, "gemini": _gemini}

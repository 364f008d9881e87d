"""Which script and which of its reply lists a request belongs to. Pure but for the sessions it remembers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, JsonValue

from .script import Answer, Branch, Script, ScriptBook

MAIN = "main"
SIDE = "side"
SESSION_HEADER = "x-claude-code-session-id"
AGENT_HEADER = "x-claude-code-agent-id"  # on the requests of a subagent only
_SIDE_MODEL = "haiku"  # Claude Code asks this family for titles and summaries
_SIDE_PROMPTS = frozenset({"quota", "Warmup"})  # what older versions ask of any model when they start
_SEARCH = "web_search"  # a tool of the API's own, which Claude Code's own tool gives to a model
_MARKER = re.compile(r"\[script:([^\]]+)\]")


class MessagesRequest(BaseModel):
    """The parts of a `POST /v1/messages` body that the server looks at."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str
    messages: list[dict[str, JsonValue]]
    tools: list[JsonValue] = []
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes: the script, and the name and replies of one of its lists."""

    script: Script
    list_name: str
    replies: tuple[Answer, ...]
    session: str


class UnroutableError(Exception):
    """No script claims the request, or none of the script's lists does."""


class Router:
    """Finds scripts. A session keeps its script until a prompt marks another one: subagents need no marker.

    A keyword counts in a session's first request only. Clients put prompts of their own into a conversation
    ("Output token limit hit …"), and those hold ordinary words.
    """

    def __init__(self, book: ScriptBook) -> None:
        self._scripts = book.scripts
        self._of_session: dict[str, Script] = {}

    def route(self, request: MessagesRequest, headers: Mapping[str, str]) -> Route:
        """Choose the script by key, newest marker, session, newest keyword, or because it is the only one.

        Raises:
            UnroutableError: nothing of that fits.
        """
        session = headers.get(SESSION_HEADER, "")
        script = (
            self._by_key(_credential(headers))
            or self._by_marker(request)
            or self._of_session.get(session)
            or self._by_keyword(request)
            or self._only()
        )
        if script is None:
            known = ", ".join(script.name for script in self._scripts)
            raise UnroutableError(f"no script for this request (key, marker, session or keyword); known: {known}")
        if session:
            self._of_session[session] = script
        return choose_list(script, request, session, subagent=AGENT_HEADER in headers)

    def _by_key(self, credential: str) -> Script | None:
        return next((script for script in self._scripts if script.key and script.key == credential), None)

    def _by_marker(self, request: MessagesRequest) -> Script | None:
        named = [name for prompt in _prompts(request) for name in _MARKER.findall(prompt)]
        return next((script for name in named for script in self._scripts if script.name == name), None)

    def _by_keyword(self, request: MessagesRequest) -> Script | None:
        keyed = [(script.keyword, script) for script in self._scripts if script.keyword is not None]
        return next(
            (script for prompt in _prompts(request) for keyword, script in keyed if keyword in prompt), None
        )

    def _only(self) -> Script | None:
        return self._scripts[0] if len(self._scripts) == 1 else None


def choose_list(script: Script, request: MessagesRequest, session: str, *, subagent: bool) -> Route:
    """The first branch that matches, else the side reply if it is beside the conversation, else the main replies.

    Raises:
        UnroutableError: a subagent asks and no branch matches; the main replies are not meant for it.
    """
    for branch in script.branches:
        if _matches(branch, request):
            return Route(script, branch.name, branch.replies, session)
    if subagent:
        raise UnroutableError(f"script {script.name!r} has no branch for this subagent")
    if _is_beside(request):
        return Route(script, SIDE, (script.side_reply,), session)
    return Route(script, MAIN, script.replies, session)


def _is_beside(request: MessagesRequest) -> bool:
    """Whether the request is no part of the conversation."""
    opening = request.messages[0] if request.messages else {}
    searches = any(isinstance(tool, dict) and tool.get("name") == _SEARCH for tool in request.tools)
    return (
        searches
        or any(text in _SIDE_PROMPTS for text in _user_texts(opening))
        or (_SIDE_MODEL in request.model and not request.tools)
    )


def _matches(branch: Branch, request: MessagesRequest) -> bool:
    if branch.model is not None and branch.model not in request.model:
        return False
    if branch.prompt is None:
        return True
    opening = request.messages[0] if request.messages else {}
    return any(branch.prompt in text for text in _user_texts(opening))


def newest_prompt(request: MessagesRequest) -> str:
    """What the user wrote last."""
    return next(_prompts(request), "")


def _prompts(request: MessagesRequest) -> Iterator[str]:
    """The user's messages, newest first, each in one string; messages without text are left out."""
    for message in reversed(request.messages):
        if text := "\n".join(_user_texts(message)):
            yield text


def _credential(headers: Mapping[str, str]) -> str:
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")


def _user_texts(message: Mapping[str, JsonValue]) -> Iterator[str]:
    """What a user wrote, without tool results and reminders: a file that quotes a marker chooses nothing."""
    if message.get("role") != "user":
        return
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "text":
                text = str(block.get("text", ""))
                if not text.startswith("<system-reminder>"):
                    yield text

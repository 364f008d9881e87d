"""Who plays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.gemini_api import GeminiApi
from tests.fakes.model_api import ModelApi
from tests.fakes.openai_api import OpenAiApi
from tests.integration.contract import claude, codex, gemini
from tests.integration.contract.claude import Claude
from tests.integration.contract.codex import Codex
from tests.integration.contract.gemini import Gemini
from tests.integration.contract.replay import Replay
from tests.integration.contract.scenes import Actor, Turn

_CLAUDES = ("claude-code", "claude-sdk")
AGENTS = (*_CLAUDES, Codex.agent, Gemini.agent, Replay.agent)


@contextmanager
def cast(root: Path, turns: Sequence[Turn]) -> Iterator[dict[str, Actor]]:
    """All actors, with the APIs that they talk to."""
    home = root / "home"
    home.mkdir()
    of_claude = (claude.script(turn) for turn in turns if turn.agent in _CLAUDES)
    of_codex = (codex.script(turn) for turn in turns if turn.agent == Codex.agent)
    of_gemini = (gemini.script(turn) for turn in turns if turn.agent == Gemini.agent)
    with (
        ModelApi(*of_claude) as api,
        OpenAiApi(*of_codex) as openai_api,
        GeminiApi(*of_gemini) as gemini_api,
    ):
        actors = (
            *(Claude(agent, api, home) for agent in _CLAUDES),
            Codex(openai_api, home),
            Gemini(gemini_api, home),
            Replay(),
        )
        yield {actor.agent: actor for actor in actors}

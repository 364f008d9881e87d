"""Made-up turns in the format of the recordings, with seeded random duration, usage and outcome.

They show a typical fleet; the actual output of Claude Code is in `tests/data`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from adapters.claude_code.prices import cost_usd
from adapters.usage import Tokens
from tests.support.places import RECORDINGS

# Tool, and how many seconds a call takes in the mean.
_TOOLS = {
    "Bash": 1.6,
    "Read": 0.05,
    "Edit": 0.1,
    "Grep": 0.25,
    "Glob": 0.1,
    "WebFetch": 0.9,
    "mcp__jira__get": 0.5,
}
_WEIGHTS = (8, 10, 6, 5, 2, 1, 1)
_FAILING = {"Bash": 0.18, "Edit": 0.08, "WebFetch": 0.3}

MODELS = ("claude-sonnet-4-5", "claude-opus-4-8", "claude-haiku-4-5")
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
UNKNOWN = "claude-next-preview"  # Claude Code takes some price for it
_TEXT = {"type": "text", "text": "done"}


@dataclass(frozen=True, slots=True)
class Cast:
    """A seeded generator of turns; `pace` multiplies their shortest duration."""

    chance: random.Random
    pace: float = 1.0

    def completed(self, model: str, steps: int | None = None, retries: int = 0) -> dict[str, Any]:
        """Return a turn that uses tools and completes, with some API requests retried."""
        steps = steps if steps is not None else self.chance.randint(1, 6)
        lines = [self._pause(0.05), _init(model), *self._retried(retries), "no JSON at all" if retries > 2 else ""]
        for number in range(steps):
            lines += self._step(model, number)
        lines += [self._pause(0.3), _assistant(model, steps, _TEXT), self._result(model, steps)]
        return {"lines": [line for line in lines if line]}

    def replayed(self, recording: str, exit_code: int = 0) -> dict[str, Any]:
        """Return a turn that replays a recording and exits like this."""
        lines = (RECORDINGS / f"{recording}.jsonl").read_text().splitlines()
        return {"lines": [self._pause(0.1), *lines], "exit_code": exit_code}

    def silent(self, seconds: float) -> dict[str, Any]:
        """Return a turn that is silent for long."""
        model = MODELS[0]
        return {"lines": [_init(model), _after(seconds), _assistant(model, 0, _TEXT), self._result(model, 0)]}

    def _step(self, model: str, number: int) -> Iterator[str]:
        (tool,) = self.chance.choices(list(_TOOLS), _WEIGHTS)
        call = f"toolu_{self.chance.getrandbits(40):010x}"
        failed = self.chance.random() < _FAILING.get(tool, 0.02)
        yield self._pause(0.4)
        yield _assistant(model, number, {"type": "tool_use", "id": call, "name": tool, "input": {}})
        yield self._pause(_TOOLS[tool] / 2)
        answer = {"tool_use_id": call, "type": "tool_result", "content": "…", "is_error": failed}
        yield json.dumps({"type": "user", "message": {"role": "user", "content": [answer]}, "session_id": "s"})

    def _retried(self, times: int) -> Iterator[str]:
        for attempt in range(times):
            status = self.chance.choice((529, 529, 429, 500))
            retry = {"type": "system", "subtype": "api_retry", "attempt": attempt + 1, "max_retries": 10}
            yield json.dumps({**retry, "retry_delay_ms": 100.0, "error_status": status, "session_id": "s"})
            yield self._pause(0.1)

    def _result(self, model: str, steps: int) -> str:
        """Return the final report: each step reads the preceding conversation from the cache."""
        start = self.chance.randint(9_000, 24_000)
        growth = sum(self.chance.randint(300, 5_000) for _ in range(steps))
        used = {model: (self.chance.randint(20, 900), 180 + growth // 4, (steps + 1) * start, 900 + growth)}
        if self.chance.random() < 0.5:
            used["claude-haiku-4-5"] = (self.chance.randint(200, 2_000), 120, 0, 0)
        usage = {name: _usage(name, *tokens) for name, tokens in used.items()}
        return json.dumps({
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "duration_ms": 1000,
            "duration_api_ms": round(400 * self.pace * (steps + 1)),
            "num_turns": steps + 1,
            "result": "done",
            "stop_reason": "end_turn",
            "terminal_reason": "completed",
            "session_id": "s",
            "total_cost_usd": sum(entry["costUSD"] for entry in usage.values()),
            "usage": dict.fromkeys(_COUNTS, 0),
            "modelUsage": usage,
        })  # fmt: skip

    def _pause(self, mean_s: float) -> str:
        return _after(self.pace * self.chance.lognormvariate(0, 0.6) * mean_s)


def _after(seconds: float) -> str:
    return f'{{"after_ms":{seconds * 1000:.0f}}}'


def _init(model: str) -> str:
    agent = {"claude_code_version": "2.1.330", "model": model, "tools": []}
    return json.dumps({"type": "system", "subtype": "init", "session_id": "s", **agent})


def _assistant(model: str, number: int, block: dict[str, Any]) -> str:
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": [block]}
    usage = {"input_tokens": 10, "output_tokens": 20}
    return json.dumps({"type": "assistant", "message": {**message, "usage": usage}, "session_id": "s"})


def _usage(model: str, tokens_in: int, out: int, read: int, written: int) -> dict[str, Any]:
    tokens = Tokens(
        input_tokens=tokens_in,
        output_tokens=out,
        cache_read_input_tokens=read,
        cache_creation_input_tokens=written,
    )
    return {
        "inputTokens": tokens_in,
        "outputTokens": out,
        "cacheReadInputTokens": read,
        "cacheCreationInputTokens": written,
        "costUSD": cost_usd(model, tokens) or cost_usd(MODELS[0], tokens),
    }

"""The options of a Codex turn, and the arguments that they become.

To add one: add a field here, its argument in `arguments`, and run `make docs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from adapters.errors import InvalidRequest
from adapters.toolkit.options import MAX_ARGUMENT_BYTES, AgentOptions

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
# Arguments can be read by everybody on a host. Names of variables that hold secrets are none.
_SECRET = re.compile(r"(?i)key|token|secret|passw|credential|authorization|bearer|cookie|headers|^env$|^set$")
_NO_SECRET = re.compile(
    r"(?i)^(env_key|env_key_instructions|env_http_headers|env_vars|bearer_token_env_var)$|_limit$|_tokens$"
)
_OWN = {
    "model": "model",
    "model_reasoning_effort": "effort",
    "sandbox_mode": "sandbox",
}
# Beside a turn, it would ask models about earlier sessions, and keep no account of that (0.128.0 to 0.169.0).
_WITHOUT: dict[str, JsonValue] = {"features.memories": False}
_MEMORIES = "false, always: what it asks models beside a turn, nobody could book"
_FIXED = {
    "approval_policy": "`never` in codex exec, always",
    "features.memories": _MEMORIES,
    "features.memory_tool": _MEMORIES,  # its older name
}


def _printable(text: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError("holds a control character; remove it")
    return text


def _vetted(config: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in config:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no dotted name of Codex's configuration")
        if name in _OWN or name in _FIXED:
            raise ValueError(f"{name} is " + (f"the option {_OWN[name]}" if name in _OWN else _FIXED[name]))
    for name in _names(config):
        if _SECRET.search(name) and not _NO_SECRET.search(name):
            raise ValueError(
                f"{name} may hold a secret, and arguments can be read by all: put it into config.toml on the host"
            )
    if sum(len(argument.encode(errors="surrogatepass")) for argument in _overrides(config)) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes")
    return config


def _names(value: JsonValue) -> Iterator[str]:
    """All names in it, at any depth, each part of a dotted one by itself."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from name.split(".")
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


class CodexOptions(AgentOptions):
    """What `options` of a request may hold for the agent `codex`. Left out: Codex's own default."""

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = Field(
        default="workspace-write",
        description="What its commands may touch. By default they write in the workspace only, without a network; "
        "nobody is there to be asked for more, so what is not allowed fails. On a host where Codex's sandbox "
        "cannot work (some containers), or is one too many: `danger-full-access`.",
    )
    model: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)] | None = Field(
        default=None, description="A name, as `codex -m` takes it."
    )
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"] | None = Field(
        default=None, description="`model_reasoning_effort`: how much the model thinks."
    )
    config: Annotated[dict[str, JsonValue], AfterValidator(_vetted)] = Field(
        default={},
        description='Overrides of `config.toml` by dotted name: `{"tools.web_search": true}`. Secrets are '
        "refused: arguments can be read by everybody on a host.",
    )
    analytics: bool = Field(
        default=False, description="false: Codex reports nothing home, which costs 5 s a turn where it cannot."
    )


def arguments(options: CodexOptions) -> list[str]:
    """The options as arguments, each flag and its value in one, so that no value is taken for a flag."""
    given = [f"--sandbox={options.sandbox}"]
    if options.model is not None:
        given.append(f"--model={options.model}")
    config: dict[str, JsonValue] = dict(options.config)
    if options.effort is not None:
        config["model_reasoning_effort"] = options.effort
    config.setdefault("analytics.enabled", options.analytics)
    # The last of them counts, whatever a table of features, or the host's config.toml, says.
    return [*given, *_overrides(config), *_overrides(_WITHOUT)]


def _overrides(config: Mapping[str, JsonValue]) -> list[str]:
    return [f"--config={name}={_toml(value)}" for name, value in config.items()]


def _toml(value: JsonValue) -> str:
    """A value as TOML writes it, in one line. Raises ValueError for what TOML cannot say."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        raise ValueError("null has no place in Codex's configuration; leave it out")
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def refuse_limits(max_total_tokens: int | None, max_cost_usd: float | None) -> None:
    """Codex tells what it used when it is over: nobody could end it at such a limit. Raises InvalidRequest."""
    for field, limit in (("max_total_tokens", max_total_tokens), ("max_cost_usd", max_cost_usd)):
        if limit is not None:
            raise InvalidRequest(
                "codex tells what it used only when it is over; use turn_timeout_ms or a budget", field=field
            )

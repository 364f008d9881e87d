"""Options of a Codex turn and their conversion to arguments.

To add one: add a field here, its argument in `arguments`, and run `make docs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from adapters.errors import InvalidRequest
from adapters.toolkit.options import MAX_ARGUMENT_BYTES, AgentOptions, printable

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
# Every user of a host can read arguments. Names of variables that contain secrets are allowed.
_SECRET = re.compile(r"(?i)key|token|secret|passw|credential|authorization|bearer|cookie|headers|^env$|^set$")
_NO_SECRET = re.compile(
    r"(?i)^(env_key|env_key_instructions|env_http_headers|env_vars|bearer_token_env_var)$|_limit$|_tokens$"
)
_OWN = {
    "model": "model",
    "model_reasoning_effort": "effort",
    "sandbox_mode": "sandbox",
}
# With memories, Codex also asks models about earlier sessions and does not record that usage (0.128.0 to 0.169.0).
_WITHOUT: dict[str, JsonValue] = {"features.memories": False}
_MEMORIES = "always false: requests that it makes to a model outside the turn could not be booked"
_FIXED = {
    "approval_policy": "always `never` in codex exec",
    "features.memories": _MEMORIES,
    "features.memory_tool": _MEMORIES,  # its older name
}


def _vetted(config: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in config:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a dotted Codex configuration name")
        if name in _OWN or name in _FIXED:
            raise ValueError(f"{name} is " + (f"the option {_OWN[name]}" if name in _OWN else _FIXED[name]))
    for name in _names(config):
        if _SECRET.search(name) and not _NO_SECRET.search(name):
            raise ValueError(
                f"{name} may contain a secret, and any user can read arguments: put it in config.toml on the host"
            )
    if sum(len(argument.encode(errors="surrogatepass")) for argument in _overrides(config)) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {MAX_ARGUMENT_BYTES:,} bytes")
    return config


def _names(value: JsonValue) -> Iterator[str]:
    """Yield all names at any depth, with dotted names split into parts."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from name.split(".")
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


class CodexOptions(AgentOptions):
    """Request options of the agent `codex`. Unset options use Codex's own defaults."""

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = Field(
        default="workspace-write",
        description="What its commands may access. By default, they can write only in the workspace and have no "
        "network; Codex cannot ask for more, so anything else fails. Use `danger-full-access` on hosts where "
        "Codex's sandbox cannot work (some containers) or is redundant.",
    )
    model: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)] | None = Field(
        default=None, description="Model name, as for `codex -m`."
    )
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"] | None = Field(
        default=None, description="Reasoning effort (`model_reasoning_effort`)."
    )
    config: Annotated[dict[str, JsonValue], AfterValidator(_vetted)] = Field(
        default={},
        description='Overrides of `config.toml` by dotted name: `{"tools.web_search": true}`. Secrets are '
        "refused: every user of a host can read arguments.",
    )
    analytics: bool = Field(
        default=False,
        description="false: Codex sends no analytics; trying to send them costs 5 s per turn where that fails.",
    )


def arguments(options: CodexOptions) -> list[str]:
    """Return the options as arguments of the form `flag=value`, so that no value is mistaken for a flag."""
    given = [f"--sandbox={options.sandbox}"]
    if options.model is not None:
        given.append(f"--model={options.model}")
    config: dict[str, JsonValue] = dict(options.config)
    if options.effort is not None:
        config["model_reasoning_effort"] = options.effort
    config.setdefault("analytics.enabled", options.analytics)
    # The last override wins over a `features` table and the host's config.toml.
    return [*given, *_overrides(config), *_overrides(_WITHOUT)]


def _overrides(config: Mapping[str, JsonValue]) -> list[str]:
    return [f"--config={name}={_toml(value)}" for name, value in config.items()]


def _toml(value: JsonValue) -> str:
    """Return a value as one line of TOML. Raise ValueError if TOML cannot express it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        raise ValueError("null is invalid in Codex's configuration; omit it")
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def refuse_limits(max_total_tokens: int | None, max_cost_usd: float | None) -> None:
    """Raise InvalidRequest for a usage limit: Codex reports usage only at the end, so no limit could stop it."""
    for field, limit in (("max_total_tokens", max_total_tokens), ("max_cost_usd", max_cost_usd)):
        if limit is not None:
            raise InvalidRequest(
                "codex reports its usage only at the end; use turn_timeout_ms or a budget", field=field
            )

"""Claude Code's `result` line: its final report on the turn.

A missing or malformed field leaves the report incomplete, but never invalid: a reported success has happened and
was paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from adapters.claude_code.known import Version, counts_by_process, tells_stop_reason
from adapters.claude_code.tokens import read_model_tokens, read_tokens
from adapters.events import Report
from adapters.toolkit.json_fields import integer, number, optional_string
from adapters.usage import ModelUsage, Tokens, sum_by_model

_NEWS = "model_usage_since_last_result"
OWN_TOKENS = "usage"  # the main agent's own
_COUNTS = {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}
_ODD = (KeyError, TypeError, ValueError, AttributeError)


def read_report(record: dict[str, Any], before: Mapping[str, ModelUsage], version: Version | None) -> Report:
    """Return the report of a `result` line; never raises.

    `before` is the usage in earlier results of the same process. In Claude Code 2.1.330, `modelUsage` counts over
    the whole session, including earlier processes, and another field has the usage since the last result; in
    2.1.197, it counts over the process.
    """
    unread: list[str] = []
    has_news = record.get(_NEWS) is not None
    by_model = _by_model(record, _NEWS if has_news else "modelUsage", unread)
    if has_news or not by_model:
        by_model = sum_by_model([*before.items(), *by_model.items()])
    num_turns = integer(record.get("num_turns"))
    return Report(
        subtype=_subtype(record, unread),
        is_error=record.get("is_error") is True,
        text=optional_string(record.get("result")) or "",
        structured_output=record.get("structured_output"),
        by_model=by_model,
        contradictory=_contradict(_own_tokens(record, unread), by_model),
        of_session=not has_news and not counts_by_process(version),
        unread=tuple(unread),
        cut_short=_cut_short(record, num_turns, version),
        num_turns=num_turns,
        duration_ms=integer(record.get("duration_ms")),
        duration_api_ms=integer(record.get("duration_api_ms")),
        stop_reason=optional_string(record.get("stop_reason")),
        terminal_reason=optional_string(record.get("terminal_reason")),
        api_status=integer(record.get("api_error_status")),
        errors=tuple(map(str, _listed(record.get("errors")))),
        denied_tools=_denied(record.get("permission_denials")),
    )


def _subtype(record: dict[str, Any], unread: list[str]) -> str:
    subtype = optional_string(record.get("subtype"))
    if not subtype:
        unread.append("subtype")
    return subtype or ""


def _cut_short(record: dict[str, Any], num_turns: int | None, version: Version | None) -> bool | None:
    """Return True if the last answer was cut: it has no stop reason, though the version reports them."""
    if isinstance(record.get("stop_reason"), str):
        return False
    told = "stop_reason" in record and num_turns is not None and tells_stop_reason(version)
    return bool(num_turns) if told else None


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _denied(denials: object) -> tuple[str, ...]:
    named = (each.get("tool_name") for each in _listed(denials) if isinstance(each, dict))
    return tuple(str(tool) for tool in named if tool is not None)


def _by_model(record: dict[str, Any], name: str, unread: list[str]) -> dict[str, ModelUsage]:
    """Return the readable part of the usage by model; append unreadable fields to `unread`."""
    account = record.get(name)
    if not isinstance(account, dict):
        unread.append(name)
        return {}
    by_model: dict[str, ModelUsage] = {}
    for model, used in account.items():
        try:
            by_model[model] = ModelUsage(read_model_tokens(used), number(used.get("costUSD")))
        except _ODD:
            unread.append(f"{name} of {model}")
    return by_model


def _own_tokens(record: dict[str, Any], unread: list[str]) -> Tokens:
    """Return the main agent's tokens; none if unreadable, which contradicts no usage by model."""
    usage = record.get("usage")
    if isinstance(usage, dict) and usage.keys() >= _COUNTS:
        with suppress(*_ODD):
            return read_tokens(usage)
    unread.append(OWN_TOKENS)
    return Tokens()


def _contradict(own: Tokens, by_model: Mapping[str, ModelUsage]) -> bool:
    """Return True if the main agent's tokens contradict those by model.

    The latter include subagents and earlier results. The two contradict each other after an answer broke off:
    2.1.330 guesses its output in one, or omits it from the other.
    """
    prompt = output = 0
    for used in by_model.values():
        prompt += used.tokens.prompt
        output += used.tokens.output_tokens
    return own.output_tokens != output if own.prompt == prompt else own.prompt > prompt

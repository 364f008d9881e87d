"""Checks whether all model requests of subagents were answered.

Claude Code 2.1.330 repeats a request when a subagent's answer breaks off, by an error in the stream or a reset,
but neither reports that in its output nor counts what was billed. Its `agent-*.jsonl` records every request,
though. A request that the API refused looks the same there, so complete usage may be marked as incomplete. 2.1.197
has no such records: its report is trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from adapters.toolkit.json_lines import decode

_SYNTHETIC = "<synthetic>"
_TELLING = (b'"api-request"', b'"assistant"')


def all_answered(lines: Iterable[bytes], subagents: Collection[str]) -> bool:
    """Return True if every request of these subagents has an answer or a refusal in the new session file lines.

    Return False if the records of a subagent are missing.
    """
    requests: Counter[str] = Counter()
    answers: dict[str, set[str]] = {}
    recorded = False
    for line in lines:
        if not any(word in line for word in _TELLING):
            continue
        try:
            record = decode(line)
            agent = record.get("agentId")
            recorded |= record["type"] == "api-request"
            if not isinstance(agent, str):
                continue  # the main agent: its output reports every try
            if record["type"] == "api-request":
                requests[agent] += 1
            elif record["type"] == "assistant" and _is_answer(record):
                answers.setdefault(agent, set()).add(record["message"]["id"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False  # the line may have recorded a request
    told = requests.keys() | answers.keys()
    if not recorded:
        return set(subagents) <= told
    return set(subagents) <= told and all(0 < requests[agent] <= len(answers.get(agent, ())) for agent in told)


def _is_answer(record: dict[str, Any]) -> bool:
    """Return True for an answer or an unbilled refusal; a synthetic message without a status is neither."""
    return bool(record["message"]["model"] != _SYNTHETIC or record.get("apiErrorStatus"))

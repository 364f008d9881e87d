"""Whether subagents have asked the model for more than it has answered.

Claude Code 2.1.330 asks again when a subagent's answer breaks off, by an error in the stream or a reset, and tells
so nowhere in its output, nor counts what was billed. Its `agent-*.jsonl` has a record of every request, though. A
request that the API refused looks the same there, so this may doubt an account that is whole. 2.1.197 has no such
records: what it told is believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from adapters.toolkit.json_lines import decode

_SYNTHETIC = "<synthetic>"
_TELLING = (b'"api-request"', b'"assistant"')


def all_answered(lines: Iterable[bytes], subagents: Collection[str]) -> bool:
    """Whether every request of these subagents has an answer or a refusal in what was added to session files.

    False, too, where the records of a subagent were not found.
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
                continue  # the main agent's: its output tells of every try
            if record["type"] == "api-request":
                requests[agent] += 1
            elif record["type"] == "assistant" and _is_answer(record):
                answers.setdefault(agent, set()).add(record["message"]["id"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False  # nobody knows what it would have told
    told = requests.keys() | answers.keys()
    if not recorded:
        return set(subagents) <= told
    return set(subagents) <= told and all(0 < requests[agent] <= len(answers.get(agent, ())) for agent in told)


def _is_answer(record: dict[str, Any]) -> bool:
    """Made-up messages stand for a failure; one that has a status was refused, and not billed."""
    return bool(record["message"]["model"] != _SYNTHETIC or record.get("apiErrorStatus"))

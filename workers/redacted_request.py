"""The view of a requested turn for monitors: one short line without anything that looks like a secret.

It appears in Celery's events, and so in Flower, where Celery itself would show the whole request; the beginning of
the prompt, also in lists of turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from adapters.protocol.request import TurnRequest
from ops.redaction import Redactor, without_keys

_HEAD = 2_000  # characters of a prompt to scan
_SHOWN = 80  # and to show, at most
_MOST = 240  # of the whole line, at most
_LABELS = 3  # of a host, at most


def described(asked: object, redactor: Redactor | None = None) -> str:
    """Return the agent, host and beginning of the prompt of a request, or of whatever a producer sent instead.

    Leave out the prompt without a `redactor` that knows the secrets at hand.
    """
    given = asked.model_dump(include=_FIELDS) if isinstance(asked, TurnRequest) else asked
    if not isinstance(given, Mapping):
        return "(not a request)"
    if isinstance(given.get("turn"), Mapping):  # of a session of turns
        given = given["turn"]
    agent = _word(given.get("agent")) or "default agent"
    text = f"{agent} on {_place(given)}"
    task = given.get("task")
    prompt = task.get("description") if isinstance(task, Mapping) else given.get("prompt")
    if redactor is not None and isinstance(prompt, str):
        text += f": {beginning(prompt, redactor)}"
    known = redactor.text(text) if redactor is not None else text
    return f"({_cut(without_keys(known), _MOST)})"


def named(shadow: object, task: str, redactor: Redactor) -> str:
    """Return a task's name for monitors: its own, unless its producer gave it another (`shadow`)."""
    shown = _line(shadow[:_MOST]) if isinstance(shadow, str) else ""
    return _cut(without_keys(redactor.text(shown)), _MOST) or task


_FIELDS = {"agent", "host", "host_labels", "prompt"}


def _place(given: Mapping[object, object]) -> str:
    if host := _word(given.get("host")):
        return host
    labels = given.get("host_labels")
    if not isinstance(labels, Mapping) or not labels:
        return "any host"
    pairs = (f"{_word(name)}={_word(value)}" for name, value in islice(labels.items(), _LABELS))
    return f"a host with {', '.join(pairs)}{', …' if len(labels) > _LABELS else ''}"


def beginning(prompt: str, redactor: Redactor) -> str:
    """Return the beginning of a prompt as one short line without secrets. Its first 2,001 characters suffice."""
    head = without_keys(redactor.text(prompt[:_HEAD]))
    if len(prompt) > _HEAD:
        # A secret cut in two here goes unrecognised, and redaction may have moved it into the part shown.
        head = re.sub(r"\S*\Z", "…", head)
    return _cut(_line(head), _SHOWN)


def _word(value: object) -> str:
    return _line(value[: _SHOWN * 2]) if isinstance(value, str) else ""


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = text[: most - 1]
    return (head.rpartition(" ")[0] or head).rstrip() + "…"

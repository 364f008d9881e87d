"""What people recognise a turn by: its labels, and the beginning of its prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.schema import turn_labels, turns

# A request may have 10 MB. This much has more than 2,000 characters of a longer prompt, even if all are escaped.
_HEAD = sa.func.substr(turns.c.request, 1, 16_000)
_PROMPT = re.compile(r'"prompt":"((?:[^"\\]|\\u[0-9A-Fa-f]{4}|\\[^u])*)')  # which the head may cut


def labels(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the labels of these turns; those without labels are missing."""
    query = sa.select(turn_labels).where(turn_labels.c.turn_id.in_(ids)).order_by(turn_labels.c.name)
    found: dict[str, dict[str, str]] = {}
    for turn_id, name, value in connection.execute(query):
        found.setdefault(turn_id, {})[name] = value
    return found


def prompts(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Return the beginnings of these turns' prompts, with any secrets. Turns without a request are missing."""
    heads = connection.execute(sa.select(turns.c.turn_id, _HEAD).where(turns.c.turn_id.in_(ids)))
    found = {turn_id: _PROMPT.search(head) for turn_id, head in heads if head}
    return {turn_id: json.loads(f'"{match[1]}"') for turn_id, match in found.items() if match}

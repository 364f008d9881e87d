"""A ledger with many turns, written directly: the ledger's own operations would take an hour for 10^5."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status, TurnResult
from ops.ledger.database import Database
from ops.ledger.schema import TOKEN_KINDS, attempts, events, sessions, turn_labels, turns, usage, waiters

NOW = 1_800_000_000.0  # when the newest of them was settled; all others were before
_EVERY_S = 30.0  # another one
_AT_ONCE = 5_000  # rows of turns a transaction
_TABLES = (turns, turn_labels, attempts, usage, sessions, events, waiters)  # in the order of their references
_PROMPT = "Fix the failing test, and say what was wrong with it. " * 20
_ANSWER = "The test compared floats; it compares rounded ones now. " * 20
_EVENTS = b'{"event":"text","text":"The test compares floats, which differ in the last place."}\n' * 14
_MODELS = ("claude-opus-4-5", "claude-haiku-4-5")
_RETRIED, _FAILED = 10, 20  # every so many turns, one was tried twice, or failed

Tables = dict[str, list[dict[str, Any]]]


def fill(database: Database, rows: Iterator[Tables], count: int) -> None:
    """Write the next `count` turns."""
    left = count
    while left > 0:
        some = list(islice(rows, min(left, _AT_ONCE)))
        left -= len(some)
        with database.write() as connection:
            for table in _TABLES:
                found = [row for one in some for row in one.get(table.name, ())]
                if found:
                    connection.execute(table.insert(), found)


def give_back(database: Database) -> None:
    """Queue running turns again, as if no worker had claimed them."""
    waiting = {"state": "queued", "owner": None, "owner_expires": None, "due_at": turns.c.created_at}
    with database.write() as connection:
        connection.execute(turns.update().where(turns.c.state == "running").values(waiting))


def id_of(kind: str, number: int) -> str:
    """Return an id as producers make them: unordered, so that neighbors in time are not neighbors in an index."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}-{number}"))


def settled_until(count: int) -> float:
    """Return when the first `count` turns had been requested."""
    return NOW - 10**5 * _EVERY_S + count * _EVERY_S


def settled(numbers: Iterable[int]) -> Iterator[Tables]:
    """Yield settled turns, each with attempts, usage of two models, labels, events and a session."""
    for number in numbers:
        turn_id, at = id_of("settled", number), settled_until(number)
        tries = 2 if number % _RETRIED == 0 else 1
        status = Status.FAILED if number % _FAILED == 0 else Status.COMPLETED
        labels = {"team": f"team{number % 20}", "project": f"project{number % 100}"}
        yield {
            "turns": [
                _turn(
                    turn_id,
                    at,
                    labels,
                    f"producer{number % 10}",
                    state="settled",
                    host=f"host{number % 20}",
                    session_id=f"session-{number}",
                    attempt=tries,
                    epoch=tries,
                    due_at=None,
                    started_at=at + 1,
                    settled_at=at + 60,
                    status=status,
                    error_kind="turn_failed" if status is Status.FAILED else None,
                    result=TurnResult(turn_id=turn_id, status=status, text=_ANSWER).model_dump_json(),
                )
            ],
            "turn_labels": [{"turn_id": turn_id, "name": n, "value": v} for n, v in labels.items()],
            "attempts": [_attempt(turn_id, number, tried, at) for tried in range(1, tries + 1)],
            "usage": [_usage(turn_id, tried, model) for tried in range(1, tries + 1) for model in _MODELS],
            "sessions": [
                {
                    "session_id": f"session-{number}",
                    "agent": "claude-code",
                    "host": f"host{number % 20}",
                    "workspace": "/srv/shop",
                    "locked_by": None,
                    "updated_at": at + 60,
                }
            ],
            "events": [{"turn_id": turn_id, "first_seq": 1, "last_seq": 15, "lines": _EVENTS}],
        }


def queued(numbers: Iterable[int], producers: int) -> Iterator[Tables]:
    """Yield turns that wait for any host, each with a task that waits for its result."""
    for number in numbers:
        turn_id, at = id_of("queued", number), NOW + number / 1000
        yield {
            "turns": [_turn(turn_id, at, {}, f"queue{number % producers}", state="queued", due_at=at)],
            "waiters": [{"turn_id": turn_id, "task_id": turn_id, "follows": ""}],
        }


def _turn(turn_id: str, at: float, labels: dict[str, str], producer: str, **fields: Any) -> dict[str, Any]:
    request = TurnRequest(turn_id=turn_id, prompt=_PROMPT, workspace="/srv/shop", labels=labels, producer=producer)
    empty = dict.fromkeys(
        ("host", "session_id", "started_at", "settled_at", "status", "error_kind", "result", "owner"), None
    )
    return {
        **empty,
        "turn_id": turn_id,
        "request": request.model_dump_json(),
        "agent": "claude-code",
        "workspace": "/srv/shop",
        "producer": producer,
        "rank": 0,
        "place": "any",
        "attempt": 0,
        "epoch": 0,
        "cancel_requested": False,
        "created_at": at,
        **fields,
    }


def _attempt(turn_id: str, number: int, tried: int, at: float) -> dict[str, Any]:
    return {
        "turn_id": turn_id,
        "attempt": tried,
        "host": f"host{number % 20}",
        "spool_id": f"{turn_id}.{tried}",
        "session_id": f"session-{number}",
        "resume": False,
        "first_seq": 1,
        "started_at": at + 1,
        "ended_at": at + 30 * tried,
        "outcome": "completed",
        "exit_code": 0,
        "usage_source": "result",
        "usage_complete": True,
    }


def _usage(turn_id: str, tried: int, model: str) -> dict[str, Any]:
    amounts = dict(zip(TOKEN_KINDS, (1200, 800, 30_000, 4_000), strict=True))
    return {
        "turn_id": turn_id,
        "attempt": tried,
        "model": model,
        "observed": True,
        "cost_nano": 70_000_000,
        **amounts,
    }

"""What the ledger keeps of a task's message so that Celery can execute the task once its turn is claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, Self
from uuid import NAMESPACE_OID, uuid5

from ops.ledger import Claim, Waiter
from workers.app import TASK
from workers.brokers.serialization import dumps, loads
from workers.errors import MessageTooLong
from workers.tasks.celery_request import ShownRequest

_MOST = 10 * 1024 * 1024  # bytes, as for a prompt

# Parts that the request already has, that may expose a producer's secret, or that Celery adds by itself.
_IN_THE_REQUEST = ("args", "kwargs", "eta", "expires", "timelimit")
_SHOWN = ("argsrepr", "kwargsrepr")
_ADDED = ("properties", "reply_to", "correlation_id", "hostname", "delivery_info")
_DROPPED = frozenset((*_IN_THE_REQUEST, *_SHOWN, *_ADDED))
_PROPERTIES = ("correlation_id", "reply_to", "priority")
_CANVASES = ("celery.chain", "celery.chord", "celery.group")


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """The kept parts of one message."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    embed: dict[str, Any]  # what follows the task: callbacks, errbacks, chain, chord
    failures_raise: bool = True  # see `delivery.Execution.raises`

    @classmethod
    def read(cls, waiter: Waiter) -> Self:
        """Return the kept message of a task, or a minimal one if the message has not arrived yet."""
        if waiter.message is not None:
            return cls(**loads(waiter.message))
        headers = {"id": waiter.task_id, "task": TASK, "root_id": waiter.turn_id}
        return cls(headers, {"correlation_id": waiter.task_id}, {})

    def written(self) -> str:
        """Return the JSON form; asdict() would copy all of it first."""
        return dumps({each.name: getattr(self, each.name) for each in fields(self)})

    @property
    def follows(self) -> frozenset[str]:
        """Return the ids of the tasks that follow."""
        return _ids(list(self.embed.values()))


def keep(request: ShownRequest) -> tuple[str, str]:
    """Return a digest of what follows a task, blank for nothing, and what the ledger keeps of its message.

    Raises MessageTooLong. Messages of Celery's first protocol have no headers.
    """
    following = {name: each for name, each in request.embed.items() if each}
    group = request.group if "chord" in following else None  # its body follows once all its tasks have finished
    properties = request.message.properties or {}
    # An rpc backend sends results to the process that asks, which asks anew after a restart.
    asker = properties.get("reply_to") if (request.app.conf.result_backend or "").startswith("rpc") else None
    digest = sha256(dumps([group, following, asker]).encode()).hexdigest() if following or asker else ""
    turn = request.asked.turn
    identify(list(following.values()), f"{request.id} {digest}")
    kept = KeptMessage(
        {name: each for name, each in request.request_dict.items() if name not in _DROPPED and _is_json(each)},
        {name: properties.get(name) for name in _PROPERTIES},
        following,
        not isinstance(turn, Mapping) or turn.get("failure") != "return",
    )
    message = kept.written()
    if len(message) > _MOST:
        raise MessageTooLong(
            f"the tasks that follow, with the headers, are {len(message):,} bytes long, and at most {_MOST:,} "
            "can be kept: link a single task, and send the others from it"
        )
    return digest, message


def identify(following: list[Any], seed: str) -> frozenset[str]:
    """Give each task an id that is the same whenever it is sent, to expose duplicates. Return all ids."""
    for task, place in _tasks(following):
        task.setdefault("options", {}).setdefault("task_id", str(uuid5(NAMESPACE_OID, f"{seed}{place}")))
    return _ids(following)


def _ids(following: list[Any]) -> frozenset[str]:
    return frozenset(task["options"]["task_id"] for task, _ in _tasks(following))


def _tasks(following: object, place: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each following task and its place."""
    if isinstance(following, list):
        for number, each in enumerate(following):
            yield from _tasks(each, f"{place}.{number}")
    elif isinstance(following, dict) and "task" in following:
        if following["task"] in _CANVASES:
            for name in ("tasks", "header", "body"):
                yield from _tasks((following.get("kwargs") or {}).get(name), f"{place}.{name}")
        else:
            yield following, place
        yield from _tasks((following.get("options") or {}).get("link_error"), f"{place}.link_error")


def _is_json(value: object) -> bool:
    """Return whether a value can be kept: broker plugins add headers of other types."""
    try:
        dumps(value)
    except TypeError:
        return False
    return True


def stamps_of(message: str) -> Mapping[str, object]:
    """Return the stamps in a kept message."""
    stamps: object = loads(message)["headers"].get("stamps")
    return stamps if isinstance(stamps, dict) else {}


def unasked(claim: Claim) -> Waiter:
    """Return a substitute task for a turn that no task waits for, as in a session: monitors still see it."""
    headers = {
        "id": claim.turn_id,
        "task": TASK,
        "root_id": claim.session_run or claim.turn_id,
        "parent_id": claim.session_run,
        "ignore_result": True,
    }
    kept = KeptMessage(headers, {"correlation_id": claim.turn_id}, {})
    return Waiter(claim.turn_id, claim.turn_id, message=kept.written())

"""Celery's `map` and `starmap` over turns: a chord with one turn per item.

Celery calls the task itself, item by item, but turns cannot be called. The chord's body has the map's own id,
collects the results in the order of the items, and is followed by what follows the map. All ids derive from that
one, so a redelivered message asks for the same turns. Other tasks are called as in Celery.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import structlog
from celery import Celery, chord, group
from celery.app.task import Task
from celery.exceptions import Ignore

from workers.app import SESSION_TASK, TASK
from workers.brokers.settings import queue_names
from workers.errors import MessageRefused, Undelivered
from workers.tasks import delivery
from workers.tasks.delivery import SHOWN, Execution
from workers.tasks.kept_message import identify

_COLLECT = "celery.accumulate"
_NO_CHORDS = (
    "over turns needs a result backend that supports chords (RUNTURN_RESULT_URL); set one, or send a group"
)
_PAUSE_S = 5.0

# What the body takes from the map: the name in a request, and the option of a signature.
_OF_THE_MAP = {
    **{"id": "task_id", "callbacks": "link", "errbacks": "link_error", "group": "group_id"},
    **{name: name for name in ("chain", "chord", "group_index", "root_id", "parent_id", "ignore_result")},
}

log = structlog.get_logger(__name__)


class _Lasting(Task):  # type: ignore[misc]  # Celery has no types
    """A task whose end is delivered like a turn's if it is called over turns."""

    def lasts(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Return whether it is called over turns."""
        return False

    def repeating(self, trace: Callable[..., Any]) -> Callable[..., Any]:
        """Return a tracer that repeats the task until its end is delivered and its message may be acknowledged."""

        def traced(task_id: str, args: Sequence[object], kwargs: Mapping[str, object], request: Any) -> Any:
            if not self.lasts(args, kwargs):
                return trace(task_id, args, kwargs, request)
            execution = Execution(lambda: None, follows=identify(_following(request), task_id))
            while True:
                try:
                    with delivery.executing(execution):
                        return trace(task_id, args, kwargs, request)
                except Undelivered as error:
                    log.warning(
                        "a task's end will be delivered later", task_id=task_id, error=delivery.summary(error)
                    )
                    time.sleep(_PAUSE_S)

        return traced


class _Collect(_Lasting):
    """Celery's `accumulate`, which returns its arguments."""

    name = _COLLECT
    resultrepr_maxsize = 1  # so that monitors do not quote agents

    def lasts(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Return whether it is called as the body of a map's chord."""
        return len(args) == 1 and kwargs == {"index": 0}

    def run(self, *args: object, index: int | None = None) -> object:
        """Return the arguments, or one of them."""
        return args if index is None else args[index]


class _Map(_Lasting):
    """Calls a task with each item."""

    name = "celery.map"

    def start_strategy(self, app: Celery, consumer: Any, **kwargs: Any) -> Callable[..., None]:
        """Return the function that receives messages; it raises MessageRefused if there are no chords."""
        receive: Callable[..., None] = super().start_strategy(app, consumer, **kwargs)

        def received(message: Any, *args: Any) -> None:
            payload = message.payload
            named, embed = (payload["kwargs"], payload) if isinstance(payload, dict) else payload[1:]
            if _is_turn(named.get("task")):
                message.headers.update(SHOWN)
                identify(_following(embed), "")  # only to validate it
                try:
                    app.backend.ensure_chords_allowed()
                except NotImplementedError as error:
                    raise MessageRefused(f"{self.name} {_NO_CHORDS}") from error
            receive(message, *args)

        return received

    def lasts(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Return whether the mapped task is a turn's."""
        return _is_turn(kwargs.get("task"))

    def run(self, task: Mapping[str, Any], it: Iterable[Any]) -> list[object]:
        """Return the results. Raises Ignore once the turns that produce them have been sent."""
        arguments = [self.arguments(item) for item in it]
        if not arguments or not _is_turn(task):
            call = self.app.signature(task).type
            return [call(*each) for each in arguments]
        self._send(task["task"], arguments)
        raise Ignore

    @staticmethod
    def arguments(item: Any) -> list[Any]:
        """Return the arguments for an item."""
        return [item]

    def _send(self, task: str, arguments: Iterable[list[Any]]) -> None:
        asked, sign = self.request, self.app.signature
        options = {
            option: each for name, option in _OF_THE_MAP.items() if (each := getattr(asked, name)) is not None
        }
        body = sign(_COLLECT, kwargs={"index": 0}, queue=queue_names(self.app)[0], **options)
        stamps = {**asked.stamps, "stamped_headers": asked.stamped_headers} if asked.stamps else {}
        priority = asked.delivery_info.get("priority")
        turns = [
            sign(task, args=each, task_id=_id(asked.id, number), priority=priority, **stamps)
            for number, each in enumerate(arguments)
        ]
        if (execution := delivery.current()) is not None:
            execution.follows |= {turn.options["task_id"] for turn in turns}
        header = group(turns, app=self.app, task_id=_id(asked.id, "turns"))
        chord(header, body, app=self.app).apply_async()


class _StarMap(_Map):
    """Calls a task with each item's elements."""

    name = "celery.starmap"

    @staticmethod
    def arguments(item: Any) -> list[Any]:
        """Return the arguments for an item."""
        return list(item)


def define(app: Celery) -> None:
    """Replace Celery's own tasks."""
    for task in (_Map, _StarMap, _Collect):
        app.register_task(task())


def _is_turn(signature: object) -> bool:
    return isinstance(signature, Mapping) and signature.get("task") in (TASK, SESSION_TASK)


def _following(embed: Mapping[str, Any]) -> list[Any]:
    return [embed.get(name) for name in ("callbacks", "errbacks", "chain", "chord")]


def _id(map_id: str, part: object) -> str:
    return str(uuid5(NAMESPACE_OID, f"{map_id} {part}"))

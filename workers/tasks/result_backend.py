"""A worker's result backend: no state after a final one, each errback once, and no chord lost."""

from __future__ import annotations

import math
from typing import Any

import structlog
from celery import Celery, maybe_signature, states
from celery.app.task import Context
from celery.backends.base import Backend, BaseKeyValueStoreBackend, DisabledBackend, SyncBackendMixin
from celery.exceptions import ChordError
from celery.result import GroupResult, ResultSet

from workers.errors import Undelivered
from workers.tasks import delivery

_CONNECTIONS = 8  # to a Redis result backend, for all threads of a worker

log = structlog.get_logger(__name__)


class _Backend(Backend):  # type: ignore[misc]  # Celery has no types
    """A result backend that calls each errback once."""

    def _call_task_errbacks(self, request: Any, exc: BaseException, traceback: Any) -> None:
        """Call errbacks, or send them. Celery calls those with three arguments in this process."""
        execution, errbacks = delivery.current(), request.errbacks
        if execution is None:
            super()._call_task_errbacks(request, exc, traceback)
            return
        for errback in errbacks:
            # A canvas has no id; each of its tasks does, and is sent once under it.
            called = {f"{task_id} called"} if (task_id := errback["options"].get("task_id")) else set()
            if called & execution.sent:
                continue
            request.errbacks = [errback]
            try:
                super()._call_task_errbacks(request, exc, traceback)
            except Exception as error:  # the errback's own; a failure to send is Undelivered
                log.warning("an errback failed", task=errback["task"], error=delivery.summary(error))
            execution.sent |= called
        request.errbacks = errbacks


class _States(_Backend):
    """Stores no state after a final one: a worker that was frozen may report late."""

    def store_result(self, task_id: str, result: Any, state: str, *args: Any, **kwargs: Any) -> Any:
        """Store a state, unless a final one is stored."""
        final = states.READY_STATES
        if state not in final and self.get_task_meta(task_id, cache=False)["status"] in final:
            return result
        return super().store_result(task_id, result, state, *args, **kwargs)


class _RedisStates(_Backend, BaseKeyValueStoreBackend):  # type: ignore[misc]  # as above
    """The same on Redis, atomically. A chord's counters are kept until its body has been sent."""

    def _set_with_state(self, key: str, value: str, state: str) -> None:
        def set_unless_ended(pipe: Any) -> None:
            known = pipe.get(key)
            pipe.multi()
            if not known or self.decode(known)["status"] not in states.READY_STATES:
                pipe.set(key, value, ex=self.expires or None)
                pipe.publish(key, value)

        if state in states.READY_STATES:
            super()._set_with_state(key, value, state)
        else:
            self.client.transaction(set_unless_ended, key)

    def on_chord_part_return(self, request: Any, state: str, result: Any, **options: Any) -> None:
        """Count a finished task of a chord, and send the body after the last one.

        Celery's own method deletes the counters even if the body could not be sent.
        """
        if delivery.current() is None or not request.group:
            super().on_chord_part_return(request, state, result, **options)
            return
        parts, more, size = keys = [self.get_key_for_group(request.group, kind) for kind in (".j", ".t", ".s")]
        part = self.encode([1, request.id, state, self.encode_result(result, state)])
        place = math.inf if request.group_index is None else request.group_index
        # A killed worker may have counted it, and another version may write the same result differently.
        counted = any(
            self.decode(each)[1] == request.id for each in self.client.zrangebyscore(parts, place, place)
        )
        with self.client.pipeline() as pipe:
            pipe.zcard(parts) if counted else pipe.zadd(parts, {part: place})
            pipe.zcard(parts).get(more).get(size)
            for key in keys if self.expires else ():
                pipe.expire(key, self.expires)
            _, count, others, expected, *_ = pipe.execute()
        if not expected or count < int(expected) + int(others or 0):
            return
        body = maybe_signature(request.chord, app=self.app)
        try:
            results = self._results(request.group, parts)
        except ChordError as error:
            self.chord_error_from_stack(body, error)
            place = {name: body.options.get(name) for name in ("chord", "group_index")}
            if place["chord"]:  # Celery would leave an enclosing chord waiting
                part = Context(id=body.id, group=body.options.get("group_id"), **place)
                self.on_chord_part_return(part, states.FAILURE, error)
        else:
            body.delay(results)
        self.client.delete(*keys)

    def _results(self, group: str, parts: str) -> list[Any]:
        """Return the results of a chord's tasks. Raises ChordError if one failed, Undelivered if one runs."""
        header = GroupResult.restore(group, backend=self, app=self.app)
        if header is None:
            return [self._unpack_chord_result(part, self.decode) for part in self.client.zrange(parts, 0, -1)]
        if not header.ready():  # Celery would wait for that in this thread
            raise Undelivered("not all tasks of the chord have finished")
        return _results(header)


def _results(header: ResultSet) -> list[Any]:
    """Return the results of finished tasks, grouped as they are. Raises ChordError if one failed."""
    failed = next(
        (
            each
            for each in header.results
            if not isinstance(each, ResultSet) and each.state in states.PROPAGATE_STATES
        ),
        None,
    )
    if failed is not None:
        raise ChordError(f"Dependency {failed.id} raised {failed.result!r}")
    return [_results(each) if isinstance(each, ResultSet) else each.result for each in header.results]


def prepare(app: Celery) -> None:
    """Make the result backend behave as `delivery` requires; call before anything uses it."""
    # Each turn has a thread, but must not have its own connection. Only in workers: where threads wait for results
    # over one backend, they overwrite each other's subscriptions and wait in vain (Celery 5.6).
    app.conf.result_backend_thread_safe = True
    app._backend = app._get_backend()
    kind = type(app.backend)
    states_of_kind: type[_Backend] = _Backend
    if "celery.backends.redis" in {
        each.__module__ for each in kind.__mro__
    }:  # without loading its client for others
        states_of_kind = _RedisStates
        _bound_connections(app.backend)
    elif issubclass(kind, SyncBackendMixin) and not issubclass(kind, DisabledBackend):  # its states can be read
        states_of_kind = _States
    app.backend.__class__ = type(kind.__name__, (states_of_kind, kind), {})


def _bound_connections(backend: Any) -> None:
    """Make threads wait for a connection to Redis. Celery's pool opens one for each concurrent request."""
    from redis import BlockingConnectionPool  # noqa: PLC0415  # only where results are in Redis

    if hasattr(backend, "_ConnectionPool"):
        backend._ConnectionPool = BlockingConnectionPool
        backend.connparams["max_connections"] = _CONNECTIONS

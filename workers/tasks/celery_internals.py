"""All uses of undocumented parts of Celery, except those of kombu's Redis transport.

`tests/unit/workers/test_private_names.py` names all of these parts, and fails if a version of Celery changes one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import structlog
from celery import Celery, maybe_signature, states
from celery.app import trace
from celery.app.amqp import Queues
from celery.app.task import Context
from celery.apps import worker as celery_cli
from celery.backends.base import Backend, BaseKeyValueStoreBackend, DisabledBackend, SyncBackendMixin
from celery.concurrency.base import apply_target
from celery.exceptions import ChordError
from celery.result import GroupResult, ResultSet
from celery.worker import state
from celery.worker.consumer import tasks
from celery.worker.request import Request
from celery.worker.strategy import hybrid_to_proto2, proto1_to_proto2
from kombu import Exchange, Queue

from adapters.protocol.arguments import Asked, asked
from workers.app import SESSION_TASK, TASK
from workers.errors import Undelivered
from workers.tasks import delivery

_CONNECTIONS = 8  # to a Redis result backend, for all threads of a worker

log = structlog.get_logger(__name__)


def decoded(app: Celery, message: Any, body: Any) -> dict[str, Any]:
    """Return a message in version 2 of Celery's protocol, as arguments of a Request."""
    if body is None and "args" not in message.payload:
        return {"body": message.body, "headers": message.headers, "utc": app.uses_utc_timezone()}
    hybrid = "args" in message.payload
    converted = hybrid_to_proto2(message, message.payload) if hybrid else proto1_to_proto2(message, body)
    return dict(zip(("body", "headers", "decoded", "utc"), converted, strict=True))


class ShownRequest(Request):  # type: ignore[misc]  # Celery has no types
    """Celery's view of a task without secrets: for events, Flower and `inspect`.

    Celery's own clients add the repr of all arguments to events, and `inspect` shows the arguments themselves.
    """

    def show(self, name: str, arguments: str) -> None:
        """Show the task with this name and these arguments, whatever its producer wanted shown."""
        self.name = name
        self._argsrepr, self._kwargsrepr = arguments, "{}"

    @cached_property
    def asked(self) -> Asked:
        """Return the task's request, completed by the result of the task that it follows."""
        return asked(self.args or (), self.kwargs or {})

    @property
    def embed(self) -> dict[str, Any]:
        """Return what follows the task."""
        return self._payload[2] or {}

    def info(self, safe: bool = False) -> dict[str, Any]:
        """Return what `inspect` shows."""
        told: dict[str, Any] = super().info(safe=True)
        return told


class KeptRequest(ShownRequest):
    """A task executed here from what the ledger keeps of its message."""

    def __init__(
        self,
        app: Celery,
        hostname: str,
        kept: Any,
        args: list[object],
        post: Callable[[Callable[[], object]], None],
        send: Callable[..., None],
    ) -> None:
        """`post` schedules a call on Celery's thread; `send` sends an event."""
        body: tuple[list[object], dict[str, object], dict[str, Any]] = (args, {}, kept.embed)
        message = SimpleNamespace(headers=kept.headers, body=body, delivery_info={}, properties=kept.properties)
        super().__init__(message, app=app, hostname=hostname, headers=kept.headers, body=body, decoded=True)
        self._post = post
        self._send = send
        self.show(self.type, "()")

    def execute_here(self, tracers: Mapping[str, Any]) -> None:
        """Execute the task in this thread with `turn_tracers`. Raises Undelivered."""
        traced = partial(trace.fast_trace_task, _loc=(tracers, (), self.hostname))

        def apply_async(_: object, **call: Any) -> None:
            apply_target(traced, propagate=(Undelivered,), **call)

        try:
            self.execute_using_pool(SimpleNamespace(apply_async=apply_async))
        except Exception as error:
            delivery.check(error)
            raise
        finally:
            self._post(partial(state.task_ready, self))

    def on_accepted(self, *accepted: Any) -> None:
        """Record the start, on the thread where `inspect` iterates over the tasks."""
        self._post(partial(super().on_accepted, *accepted))

    def revoked(self) -> bool:
        """Return False: revoking a task cancels its turn in the ledger."""
        return False

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Do nothing: a stopping worker always leaves its turns to the next one."""

    def send_event(self, type: str, **fields: Any) -> None:
        """Send an event without its traceback, which is always the same except for the agent's words.

        Monitors learn of retries when a task is received, which happens only once here.
        """
        fields.pop("traceback", None)
        if type == "task-started" and (retries := self.request_dict.get("retries")):
            fields["retries"] = retries
        self._send(type, uuid=self.id, **fields)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Handle an exception of the body, such as Cancelled."""
        raised = getattr(exc_info.exception, "exc", exc_info.exception)  # it may be wrapped to keep its traceback
        if not isinstance(raised, delivery.Cancelled):
            super().on_failure(exc_info, send_failed_event, return_ok)
        else:
            reason = "expired" if raised.expired else "cancelled"
            self._announce_revoked(reason, not raised.expired, None, raised.expired)


class _End(trace.TraceInfo):  # type: ignore[misc]  # as above
    """The end of an execution, for Celery's tracer."""

    def handle_failure(self, task: Any, req: Any, **options: Any) -> Any:
        """Store that the task failed, unless only the delivery of its end did."""
        delivery.check(self.retval)
        return super().handle_failure(task, req, **options)


class _Backend(Backend):  # type: ignore[misc]  # as above
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


class _Queues(Queues):  # type: ignore[misc]  # as above
    """The queues that a worker declares and consumes: its own, and none that it only sends to.

    Celery treats each queue it has sent to as one of the application's: it declares the queue its own way, which
    keeps the owner from declaring it differently, and consumes from it after the next reconnection.
    """

    def __missing__(self, name: str) -> Queue:
        return Queue(name, Exchange("", no_declare=True), routing_key=name, no_declare=True)


def prepare(app: Celery) -> None:
    """Make queues and the result backend behave as `delivery` requires; call before anything uses them."""
    app.amqp.queues_cls = _Queues
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


def turn_tracers(app: Celery, hostname: str) -> Mapping[str, Any]:
    """Return the tracers that execute the tasks of turns, built by Celery or an instrumentation that replaces it.

    They are not stored on the tasks: a consumer builds Celery's own tracers there on each connection.
    """
    return {
        name: SimpleNamespace(
            __trace__=trace.build_tracer(name, app.tasks[name], app.loader, hostname, Info=_End, app=app)
        )
        for name in (TASK, SESSION_TASK)
    }


def trace_tasks(app: Celery, hostname: str) -> None:
    """Trace an operator's own tasks the same way; call after a consumer has built its tracers."""
    for name, task in app.tasks.items():
        tracer = trace.build_tracer(name, task, app.loader, hostname, Info=_End, app=app)
        task.__trace__ = getattr(task, "repeating", lambda once: once)(tracer)


def silence() -> None:
    """Keep Celery from writing to a terminal when it stops.

    The text is not a log line, and is wrong here: a second Ctrl-C does not terminate agents.
    """
    celery_cli.safe_say = lambda *_, **__: None
    warnings.filterwarnings("ignore", "Exception raised outside body", RuntimeWarning)  # see `delivery`


def prefetch_by_consumer() -> None:
    """Set no channel-wide prefetch: quorum queues refuse it, and here each channel has one consumer.

    Celery detects quorum queues by their arguments, but a virtual host can also make a queue one by default.
    """
    tasks.Tasks.qos_global = lambda *_: False

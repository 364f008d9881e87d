"""What runturn uses of Celery and kombu without their having documented it: each name, where it is expected.

A version that has changed one fails here, by its name, before it fails elsewhere in ways that are hard to read.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import kombu
import pytest

from tests.support.places import ROOT

WORKERS = ROOT / "workers"

# By module: attributes, and in parentheses the parameters that are passed by name or position.
CELERY = {
    "celery.app.amqp": ["Queues.__missing__"],
    "celery.app.base": ["Celery._get_backend"],
    "celery.app.task": ["Task.start_strategy(app, consumer)"],
    "celery.app.trace": [
        "build_tracer(name, task, loader, hostname, Info, app)",
        "fast_trace_task(_loc)",
        "TraceInfo.handle_failure(task, req)",
    ],
    "celery.apps.worker": ["safe_say"],
    "celery.backends.base": [
        "Backend.get_task_meta(task_id, cache)",
        "Backend.store_result(task_id, result, state)",
        "Backend.encode_result(result, state)",
        "Backend.ensure_chords_allowed",
        "Backend.chord_error_from_stack(callback, exc)",
        "BaseKeyValueStoreBackend._set_with_state(key, value, state)",
        "BaseKeyValueStoreBackend.on_chord_part_return(request, state, result)",
        "BaseKeyValueStoreBackend.get_key_for_group(group_id, key)",
    ],
    "celery.backends.redis": ["RedisBackend._unpack_chord_result(tup, decode)"],
    "celery.concurrency.base": [
        "apply_target(target, args, kwargs, callback, accept_callback, propagate)",
        "BasePool.on_apply",
    ],
    "celery.worker.consumer.consumer": [
        "Consumer.update_strategies",
        "Consumer.on_connection_error_after_connected",
        "Consumer.on_send_event_buffered",
        "Consumer.connection_for_write(url, heartbeat)",
        "Consumer.ensure_connected(conn)",
        "Consumer.on_ready",
        "Consumer.on_close",
        "Consumer.shutdown",
    ],
    "celery.worker.consumer.tasks": ["Tasks.qos_global"],
    "celery.worker.control": ["Panel.data"],
    "celery.worker.request": [
        "Request._payload",
        "Request._argsrepr",
        "Request._kwargsrepr",
        "Request._already_revoked",
        "Request._announce_revoked(reason, terminated, signum, expired)",
        "Request.execute_using_pool(pool)",
        "Request.on_failure(exc_info, send_failed_event, return_ok)",
        "Request.send_event(type)",
    ],
    "celery.worker.state": ["maybe_shutdown", "task_ready", "reserved_requests", "revoked", "revoked_stamps"],
    "celery.worker.strategy": ["hybrid_to_proto2(message, body)", "proto1_to_proto2(message, body)"],
}
KOMBU = {
    "kombu.transport": ["_transport_cache"],
    "kombu.transport.redis": [
        "Channel._put(queue, message)",
        "Channel._queue_bind(exchange, routing_key, pattern, queue)",
        "Channel._brpop_start(timeout)",
        "Channel._brpop_read",
        "Channel._q_for_pri(queue, pri)",
        "Channel._lookup(exchange, routing_key)",
        "Channel._in_poll",
        "Channel._create_client(asynchronous)",
        "Channel.pool",
        "Channel._fanout_queues",
        "Channel._on_connection_disconnect(connection)",
        "Channel.unacked_key",
        "Channel.unacked_index_key",
        "Channel.unacked_mutex_key",
        "Channel.visibility_timeout",
        "MultiChannelPoller._channels",
        "MultiChannelPoller.maybe_restore_messages",
        "Mutex(client, name, expire)",
        "MutexHeld",
        "QoS._delivered",
        "QoS._dirty",
        "QoS.restore_by_tag(tag, client, leftmost)",
        "QoS.restore_visible(start, num, interval)",
    ],
    "kombu.transport.virtual": ["Transport._callbacks", "Transport._deliver(message, queue)"],
}
if kombu.VERSION >= (5, 7):
    KOMBU["kombu.transport.redis"] += ["Channel._refresh_bindings(queues)", "Channel._brpop_sent_at"]
AMQP = {
    "amqp.transport": [
        "TCPTransport._read(n, initial)",
        "SSLTransport._read(n, initial)",
        "TCPTransport.raise_on_initial_eintr",
    ],
    "amqp.connection": ["Connection.Transport"],
    "kombu.transport.pyamqp": ["Connection", "SSLTransport.Connection", "Transport.Connection"],
}
NAMES = [(module, name) for table in (CELERY, KOMBU, AMQP) for module, names in table.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda value: value.partition("(")[0])
def test_name_is_where_it_was(module: str, name: str) -> None:
    path, _, parameters = name.rstrip(")").partition("(")
    owner, _, attribute = path.rpartition(".")
    found = attrgetter(owner)(import_module(module)) if owner else import_module(module)
    if not hasattr(found, attribute):
        assert _is_set_by(found, attribute), f"{module}.{path} is gone"
        return
    taken = inspect.signature(getattr(found, attribute)).parameters if parameters else {}
    missing = [each for each in re.findall(r"\w+", parameters) if each not in taken]
    assert not missing, f"{module}.{path} takes no {', '.join(missing)} any more: {', '.join(taken)}"


def _is_set_by(found: Any, attribute: str) -> bool:
    """Return whether a class sets an attribute of its instances: in itself, or in one that it is made of."""
    sources = (inspect.getsource(each) for each in inspect.getmro(found) if each is not object)
    return any(re.search(rf"self\.{attribute}\b", source) for source in sources)


@pytest.mark.parametrize("file", sorted(WORKERS.rglob("*.py")), ids=lambda file: file.stem)
def test_other_modules_use_no_private_name_of_celery_or_kombu(file: Path) -> None:
    """Their own begin with an underscore, too; these are the ones of classes that come from elsewhere."""
    if file.name in (
        "celery_internals.py",
        "celery_request.py",
        "result_backend.py",
        "redis_transport.py",
        "amqp_transport.py",
    ):
        return
    private = {
        path.rpartition(".")[2]
        for names in (*CELERY.values(), *KOMBU.values())
        for path in (name.partition("(")[0] for name in names)
        if path.rpartition(".")[2].startswith("_")
    } - {"__missing__"}
    used = [name for name in sorted(private) if re.search(rf"\.{name}\b", file.read_text())]
    assert not used, f"{file.name} uses {used}: that belongs in celery_internals"

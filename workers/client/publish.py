"""Messages that bring turns to workers, many over one connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amqp.exceptions import MessageNacked, PreconditionFailed
from celery import Celery
from kombu.exceptions import OperationalError

from adapters.protocol.request import TurnRequest
from adapters.protocol.session_request import SessionRequest
from workers.app import SESSION_TASK, TASK
from workers.brokers.settings import (
    OTHERWISE_DECLARED,
    RECONNECTION,
    connection_errors,
    declared_otherwise,
    publish_options,
    queue_names,
)
from workers.errors import BrokerUnavailable
from workers.redacted_request import described

Request = TurnRequest | SessionRequest


def send(app: Celery, requests: Sequence[Request]) -> None:
    """Send the messages of these turns or sessions. Raises BrokerUnavailable: some may have been sent.

    Avoids Celery's `send_task`: with Redis, that subscribes to the result of every task it sends for the life of
    the process, wanted or not.
    """
    with app.producer_or_acquire() as producer:
        faults = (OperationalError, OSError, MessageNacked, *connection_errors(producer.connection))
        options = publish_options(app.conf.broker_url) | {"queue": queue_names(app)[0]}
        try:
            producer.connection.ensure_connection(**RECONNECTION)
        except faults as error:
            raise BrokerUnavailable(_refused(_words(error), 0, len(requests))) from error
        for sent, request in enumerate(requests):
            try:
                app.amqp.send_task_message(producer, task_of(request), _message(app, request), **options)
            except PreconditionFailed as error:
                why = f"{OTHERWISE_DECLARED}: {error.reply_text}" if declared_otherwise(error) else str(error)
                raise BrokerUnavailable(_refused(why, sent, len(requests))) from error
            except faults as error:
                raise BrokerUnavailable(_unknown(_words(error), sent, requests)) from error


def task_of(request: Request) -> str:
    """Return the name of the task that runs the request."""
    return SESSION_TASK if isinstance(request, SessionRequest) else TASK


def id_of(request: Request) -> str:
    """Return the request's idempotency key."""
    return request.run_id if isinstance(request, SessionRequest) else request.turn_id


def document_of(request: Request) -> dict[str, Any]:
    """Return the request as JSON values."""
    if isinstance(request, SessionRequest):
        return request.document()
    # Always name the agent: without a name, workers use their own default.
    named = {"turn_id": request.turn_id, "agent": request.agent}
    return request.model_dump(mode="json", exclude_defaults=True) | named


def _message(app: Celery, request: Request) -> Any:
    return app.amqp.create_task_message(
        id_of(request),
        task_of(request),
        args=[document_of(request)],
        argsrepr=described(request.turn if isinstance(request, SessionRequest) else request),
        create_sent_event=True,
    )


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
        return "the broker did not answer in time"
    return str(error) or repr(error)


def _refused(why: str, sent: int, count: int) -> str:
    if count == 1:
        return f"the turn could not be queued: {why}"
    return (
        f"{sent} of {count} turns were queued before this failed: {why}; queue them all again: none will run twice"
    )


def _unknown(why: str, sent: int, requests: Sequence[Request]) -> str:
    """Return what to do about a message that the broker may have stored: under another id, it would run twice."""
    if len(requests) > 1:
        return _refused(why, sent, len(requests))
    (request,) = requests
    what, option = ("session", "--run-id") if isinstance(request, SessionRequest) else ("turn", "--turn-id")
    return (
        f"{what} {id_of(request)} may have been queued: {why}; queue it again under the same id, "
        f"and it will run once: {option} {id_of(request)}"
    )

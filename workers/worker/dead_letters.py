"""Messages that no worker can read: the reasons, and the path to the ledger and back to a queue.

Such a message is written to the ledger before it is acknowledged; while the ledger is down, it stays with the
broker.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import orjson
import structlog
from celery import Celery
from celery.app.task import Context
from kombu import Message
from kombu.exceptions import ContentDisallowed

from ops.errors import LedgerUnavailable
from ops.ledger import DeadLetter, DeadLetterRow, DeadLetterStore
from ops.redaction import looks_secret
from workers.brokers.settings import QUEUE, publish_options, queue_names, turn_queue
from workers.errors import MessageRefused

_RETRY_S = 1.0
_MOST_REASON = 500
_MOST_HEADERS = 64 * 1024  # bytes
# What brokers add, which differs each time, and Celery's texts for monitors, which may quote a prompt.
_LEFT_OUT = ("x-", "redelivered", "argsrepr", "kwargsrepr", "stamp")


log = structlog.get_logger(__name__)


class DeadLetters:
    """Writes messages to the ledger in a separate thread: a ledger outage must not block the broker connection.

    Use as a context manager. Messages not written on exit stay unacknowledged.
    """

    def __init__(self, store: DeadLetterStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._waiting: queue.Queue[tuple[DeadLetter, Callable[[], object]]] = queue.Queue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dead-letters", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._thread.join(timeout=2)

    def bury(self, message: Message, reason: str, acknowledge: Callable[[], object]) -> None:
        """Write a message to the ledger, then call `acknowledge`, both in another thread. Returns at once."""
        self._waiting.put((dead_letter(message, reason, self._clock()), acknowledge))

    def keep(self, message: Message, reason: str) -> bool:
        """Write a message to the ledger, however long that takes; return False on exit or after our own fault."""
        return self._kept(dead_letter(message, reason, self._clock()))

    def _run(self) -> None:
        while not self._leaving.is_set():
            try:
                letter, acknowledge = self._waiting.get(timeout=_RETRY_S)
            except queue.Empty:
                continue
            if self._kept(letter):
                acknowledge()

    def _kept(self, letter: DeadLetter) -> bool:
        told = {"letter_id": letter.row.letter_id, "task_id": letter.row.task_id, "reason": letter.row.reason}
        while not self._leaving.is_set():
            try:
                self._store.keep(letter)
            except LedgerUnavailable as error:
                log.warning("a message cannot be set aside yet", error=str(error), **told)
            except Exception:
                # Our fault, not the ledger's: the message stays with the broker, and the others continue.
                log.exception("a message could not be set aside", **told)
                return False
            else:
                log.warning("a message was set aside; see runturn dead list", **told)
                return True
            self._leaving.wait(_RETRY_S)
        return False


def dead_letter(message: Message, reason: str, now: float) -> DeadLetter:
    """Return a message as the ledger keeps it, always with the same id."""
    body = _bytes(message.body)
    headers = _headers(message.headers)
    if not message.errors:
        headers.pop("compression", None)  # kombu has decompressed the body
    content = (message.content_type, message.content_encoding)
    identity = hashlib.sha256(orjson.dumps([content, headers], option=orjson.OPT_SORT_KEYS, default=str))
    identity.update(body)
    row = DeadLetterRow(
        letter_id=identity.hexdigest()[:16],
        received_at=now,
        reason=_storable(reason)[:_MOST_REASON],
        task_id=_task_id(message, headers),
        queue=_queue(message),
        content_type=_text(message.content_type),
        content_encoding=_text(message.content_encoding),
        headers=headers,
        body_bytes=len(body),
    )
    return DeadLetter(row, body)


def fail_task(app: Celery, message: Message, reason: str) -> None:
    """Fail the task of a message in the ledger, for its waiting producer."""
    headers = message.headers if isinstance(message.headers, Mapping) else {}
    task_id = headers.get("id")
    if "task" not in headers or not isinstance(task_id, str) or not task_id or headers.get("ignore_result"):
        return
    properties = message.properties or {}
    replies = Context({name: properties.get(name) for name in ("reply_to", "correlation_id")})
    try:
        app.backend.mark_as_failure(task_id, MessageRefused(reason), request=replies)
    except Exception as error:  # the result backend is down, but the ledger has the message
        log.warning("a producer was not notified of its message", task_id=task_id, error=str(error))


def send_again(app: Celery, letter: DeadLetter) -> None:
    """Send a message unchanged. Raises kombu's OperationalError, and ValueError if its body was not kept."""
    if letter.body is None:
        raise ValueError(f"its body of {letter.row.body_bytes:,} bytes was too long to keep")
    known = queue_names(app)
    name = (
        letter.row.queue if letter.row.queue in known else known[0]
    )  # it arrived under another, or a former, name
    with app.producer_pool.acquire(block=True) as producer:
        producer.publish(
            letter.body,
            routing_key=name,
            content_type=letter.row.content_type,
            content_encoding=letter.row.content_encoding,
            headers=letter.row.headers,
            delivery_mode="persistent",
            declare=[turn_queue(name)],
            retry=True,
            **({"correlation_id": letter.row.task_id} if letter.row.task_id else {}),
            **publish_options(app.conf.broker_url),
        )


def fault(message: Message) -> str | None:
    """Return why Celery could not read a message; None: it is a task's message."""
    try:
        payload = message.payload
    except Exception as error:  # decoders may raise anything
        return unreadable(message, error)
    headers = message.headers if isinstance(message.headers, Mapping) else {}
    if "task" in headers:
        return _fault_of_protocol_2(headers, payload)
    if isinstance(payload, dict) and isinstance(payload.get("task"), str) and isinstance(payload.get("id"), str):
        return None  # Celery's protocol 1
    return "not a Celery message: neither its headers nor its body name a task and its id"


def _fault_of_protocol_2(headers: Mapping[str, object], payload: object) -> str | None:
    if not isinstance(headers["task"], str):
        return "not a Celery message: the task header is not a string"
    if headers["task"] == "celery.chunks":  # its own result could not be stored
        return "celery.chunks must be split by its producer: send chunks(...).group()"
    if not isinstance(headers.get("id"), str) or not headers["id"]:
        return "not a Celery message: the id header is missing or not a string"
    match payload:
        case [list(), dict(), dict()] | {"args": list()}:
            return None
    return "not a Celery message: the body is not [arguments, keyword arguments, options]"


def unreadable(message: Message, error: Exception) -> str:
    """Return why a body cannot be decoded."""
    if isinstance(error, ContentDisallowed):
        return f"the content type {message.content_type!r} is not accepted; send application/json"
    return f"the body is not {message.content_type} in {message.content_encoding}: {type(error).__name__}: {error}"


def given_up(message: Message) -> str:
    """Return why RabbitMQ moved a message to its dead-letter queue."""
    why = (message.headers or {}).get("x-first-death-reason")
    known = {
        "delivery_limit": "RabbitMQ dead-lettered it: it was delivered too often without being acknowledged",
        "expired": "it expired in the queue before a worker took it",
        "rejected": "a worker rejected it",
    }
    return known.get(why if isinstance(why, str) else "", f"RabbitMQ dead-lettered it: {why}")


def _headers(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {}
    kept = {
        str(name): value
        for name, value in given.items()
        if not str(name).lower().startswith(_LEFT_OUT)
        and not looks_secret(str(name).replace("-", "_"), str(value))
    }
    try:
        encoded = orjson.dumps(kept, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):  # nested too deeply, not Unicode, integers of more than 64 bits
        encoded = b""
    if not encoded or len(encoded) > _MOST_HEADERS or b"\\u0000" in encoded:
        return {name: kept[name] for name in ("task", "id") if _is_short(kept.get(name))}
    headers: dict[str, Any] = orjson.loads(encoded)
    return headers


def _is_short(value: object) -> bool:
    return isinstance(value, str) and _text(value) == value


def _queue(message: Message) -> str:
    """Return the queue that a message waited in, as far as it shows."""
    before = (message.headers or {}).get("x-first-death-queue")
    return _text(before) or _text(message.delivery_info.get("routing_key")) or QUEUE


def _task_id(message: Message, headers: Mapping[str, Any]) -> str | None:
    return _text(headers.get("id")) or _text((message.properties or {}).get("correlation_id"))


def _text(value: object) -> str | None:
    """Return short text unchanged, for a column; None for anything else."""
    return value if isinstance(value, str) and 0 < len(value) <= 255 and _storable(value) == value else None


def _storable(text: str) -> str:
    """Return the text without what PostgreSQL cannot store."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _bytes(body: object) -> bytes:
    if isinstance(body, str):
        return body.encode(errors="surrogatepass")
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    return b"" if body is None else orjson.dumps(body, default=str)

"""Signatures of turns and sessions of turns for chains, groups and chords; `app` comes from `create_app`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery

from adapters.protocol.arguments import check_after
from workers.app import SESSION_TASK, TASK
from workers.brokers.settings import queue_names
from workers.client.publish import Request, document_of, id_of, task_of
from workers.redacted_request import described


def turn_signature(app: Celery, request: Request) -> Any:
    """Return the signature of a turn or session of turns that takes nothing from the task before it."""
    return _signature(app, task_of(request), document_of(request), task_id=id_of(request), immutable=True)


def turn_signature_after(app: Celery, document: Mapping[str, object]) -> Any:
    """Return the signature of one that takes from the task before it what its request's `after` says.

    `document` is that request as a JSON object. Raises InvalidRequest if no result could complete it.
    """
    check_after(document)
    task, key = (SESSION_TASK, "run_id") if "turn" in document else (TASK, "turn_id")
    named = {"task_id": document[key]} if key in document else {}
    return _signature(app, task, document, **named)


def _signature(app: Celery, task: str, document: Mapping[str, object], **options: Any) -> Any:
    return app.signature(task, args=[document], queue=queue_names(app)[0], argsrepr=described(document), **options)

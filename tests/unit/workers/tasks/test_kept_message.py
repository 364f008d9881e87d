"""What is kept of a task's message is all that Celery needs, and tells apart what is to follow on the task."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.canvas import Signature

from ops.ledger import Waiter
from workers.app import TASK
from workers.brokers.serialization import dumps, loads
from workers.tasks.celery_request import ShownRequest
from workers.tasks.kept_message import KeptMessage, keep

LONG = 2**70
APP = Celery("company", set_as_current=False)


def received(document: object = None, **options: Any) -> ShownRequest:
    """The message of a turn's task, as it comes from a broker."""
    sent = APP.amqp.as_task_v2("t1", TASK, args=[document or {}], **options)
    body, headers = loads(dumps(sent.body)), loads(dumps(sent.headers))
    message = SimpleNamespace(headers=headers, body=body, properties=sent.properties, delivery_info={})
    task = SimpleNamespace(ignore_result=False)
    return ShownRequest(message, app=APP, task=task, headers=headers, body=body, decoded=True)


def body_of(name: str, *args: Any) -> Signature:
    return APP.signature(f"company.{name}", args=args)


def test_integers_of_any_length_follow_as_they_are() -> None:
    assert loads(json.dumps({"n": [LONG, 0.1]})) == {"n": [LONG, 0.1]}
    assert json.loads(dumps({1: LONG})) == {"1": LONG}
    _, message = keep(received(callbacks=[body_of("after", LONG)]))
    (callback,) = KeptMessage.read(Waiter("t1", "t1", message=message)).embed["callbacks"]
    assert callback["args"] == [LONG]


@pytest.mark.parametrize("text", ["NaN", f"[{LONG}, NaN]", f"[{LONG}, -Infinity]"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|unexpected character"):
        loads(text)


def test_message_is_read_as_it_was_sent() -> None:
    sent = received({"failure": "return"}, shadow="nightly", root_id="r", chain=[body_of("after")], reply_to="q")
    _, message = keep(sent)
    kept = KeptMessage.read(Waiter("t1", "t1", message=message))
    assert (kept.headers["id"], kept.headers["shadow"], kept.headers["root_id"]) == ("t1", "nightly", "r")
    assert (kept.properties["reply_to"], kept.failures_raise) == ("q", False)
    assert [each["task"] for each in kept.embed["chain"]] == ["company.after"]
    assert "argsrepr" not in kept.headers


def test_same_message_is_kept_once_and_another_chord_beside_it() -> None:
    first, again, other = (
        keep(received(chord=body_of("body"), group_id=group_id, group_index=0)) for group_id in ("g1", "g1", "g2")
    )
    assert first == again
    assert first[0] != other[0]
    plain, in_a_group = keep(received()), keep(received(group_id="g1"))
    assert plain[0] == in_a_group[0] == "", "nothing follows"


def test_all_that_follows_has_ids_which_are_the_same_whenever_it_is_sent() -> None:
    def follows() -> Any:
        inner = chord([body_of("a"), body_of("b")], body_of("c"))
        _, message = keep(received(callbacks=[body_of("first"), group(body_of("d"), chain(body_of("e"), inner))]))
        return KeptMessage.read(Waiter("t1", "t1", message=message)).embed

    def ids(each: Any) -> list[str]:
        if isinstance(each, dict) and each.get("task", "").startswith("company."):
            return [each["options"]["task_id"]]
        values = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        return [found for value in values for found in ids(value)]

    once = ids(follows())
    assert len(set(once)) == 6
    assert ids(follows()) == once
    frozen = body_of("mine").set(task_id="mine")
    _, message = keep(received(callbacks=[frozen]))
    assert ids(KeptMessage.read(Waiter("t1", "t1", message=message)).embed) == ["mine"]

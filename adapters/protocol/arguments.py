"""The arguments of a turn's task: its request, preceded by the result of the preceding task if there is one.

Celery prepends a task's result to the arguments of the tasks that follow it, unless their signatures are
immutable. A chord's body gets the list of all results of its header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from adapters.errors import InvalidRequest
from adapters.protocol.after import After
from adapters.protocol.request import MAX_PROMPT_BYTES, TurnRequest
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.validation_errors import invalid

Document = Mapping[str, object]

_OF_ANY_RESULT = frozenset(("status", "error", "usage"))  # in every result, and in no request
_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The request in a task's arguments."""

    document: object  # the request, completed from the result unless that failed
    fault: InvalidRequest | None = None  # in the arguments; the request itself is not validated yet

    @property
    def turn(self) -> object:
        """The turn's request; for a session, its first turn's."""
        document = self.document
        return document.get("turn", document) if isinstance(document, Mapping) else document


def asked(positional: Sequence[object], named: Mapping[str, object]) -> Asked:
    """Return the request in a turn task's arguments, completed from the preceding result if there is one."""
    request = positional[-1] if positional else None
    if isinstance(request, Mapping) and request.keys() >= _OF_ANY_RESULT:
        why = "is missing (got only the preceding task's result); add one that says in `after` what to take"
        return Asked(None, InvalidRequest(why, field="request"))
    try:
        _check(positional, named)
        return Asked(_joined(request, positional[0]) if len(positional) == 2 else request)
    except InvalidRequest as fault:
        return Asked(request, fault)


def check_after(document: Document) -> None:
    """Raise InvalidRequest if no result of a preceding task could complete the request."""
    said = asked([_any_result(Asked(document).turn), document], {})
    if said.fault is not None:
        raise said.fault
    if "turn" in document:
        SessionRequest.parse(said.document)
    else:
        TurnRequest.parse(said.document)


def _any_result(turn: object) -> Document:
    """Return a result with all that the turn takes from it, and no conflict with its request."""
    fields = turn if isinstance(turn, Mapping) else {}
    after = fields.get("after")
    path = after.get("prompt") if isinstance(after, Mapping) else None
    found: object = "text"
    for part in reversed(path.split(".") if isinstance(path, str) else ["text"]):
        found = {part: found}
    own = {"session_id": fields.get("session_id") or "any", "host": fields.get("host") or "any"}
    kept = {} if fields.get("workspace") else {"workspace": "/any"}
    return {**own, **kept, **(found if isinstance(found, Mapping) else {})}


def _check(positional: Sequence[object], named: Mapping[str, object]) -> None:
    if named:
        raise InvalidRequest("must be empty; send the request as a positional argument", field="kwargs")
    if not 1 <= len(positional) <= 2:
        why = "must be the only positional argument, or follow the preceding task's result"
        raise InvalidRequest(f"{why}; got {len(positional)}", field="request")


def _joined(request: object, result: object) -> object:
    if not isinstance(request, Mapping):
        return request
    turn = request.get("turn")
    if isinstance(turn, Mapping):  # of a session
        return {**request, "turn": _completed(turn, result, "turn.after")}
    return _completed(request, result, "after")


def _completed(request: Document, result: object, name: str) -> Document:
    """Return the request with what its `after` takes from the result; `name` is that of `after` in errors."""
    if request.get("after") is None:
        raise InvalidRequest(
            "is missing, but the arguments include the preceding task's result; say what the turn takes from it, "
            "or make the signature immutable",
            field=name,
        )
    try:
        takes = After.model_validate(request["after"])
    except ValidationError as error:
        raise invalid(error, name, kind=After) from error
    fields: Document = {field: value for field, value in request.items() if field != "after"}
    if takes.prompt is not None:
        fields = _with_prompt(fields, _texts(result, takes.prompt, f"{name}.prompt"), f"{name}.prompt")
    if takes.session:
        fields = _in_its_place(fields, result, "session_id", f"{name}.session")
    if takes.workspace:
        fields = _in_its_place(fields, result, "host", f"{name}.workspace")
    return fields


def _in_its_place(fields: Document, result: object, needed: str, name: str) -> Document:
    """Return the fields with the `needed` one of the result, and with its kept workspace if there is one."""
    if not isinstance(result, Mapping):
        raise InvalidRequest(f"needs the result of one turn, got {_kind(result)}", field=name)
    if not isinstance(result.get(needed), str):
        raise InvalidRequest(f"there is no {needed} in the result", field=name)
    taken = {each: result[each] for each in (needed, "workspace") if result.get(each) is not None}
    for each, value in taken.items():
        if fields.get(each) not in (None, "", value):
            raise InvalidRequest(f"conflicts with the request's {each}; leave that out", field=name)
    return {**fields, **taken}


def _with_prompt(fields: Document, texts: Sequence[str], name: str) -> Document:
    prompt, task = fields.get("prompt"), fields.get("task")
    added = _section(texts)
    if isinstance(task, Mapping):
        context = task.get("attached_context") or []
        filled = [*context, added] if isinstance(context, list) else context  # else validation refuses it
        fields = {**fields, "task": {**task, "attached_context": filled}}
    elif prompt is None:
        added = texts[0] if len(texts) == 1 else added
        fields = {**fields, "prompt": added}
    elif isinstance(prompt, str) and prompt.strip():  # else validation refuses it
        added = f"{prompt}\n\n{added}"
        fields = {**fields, "prompt": added}
    size = len(added.encode(errors="replace"))
    if size > MAX_PROMPT_BYTES:
        why = f"makes the prompt {size:,} bytes long; the limit is {MAX_PROMPT_BYTES:,}"
        raise InvalidRequest(why, field=name)
    return fields


def _section(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return f"<result>\n{texts[0]}\n</result>"
    count = len(texts)
    numbered = (f'<result number="{n}" of="{count}">\n{text}\n</result>' for n, text in enumerate(texts, 1))
    return "\n\n".join(numbered)


def _texts(result: object, path: str, name: str) -> list[str]:
    """Return the texts to add to the prompt: one, or one for each result of a chord."""
    if not isinstance(result, list):
        return [_text(result, path, name, "the result")]
    if not result:
        raise InvalidRequest("needs results, got an empty list", field=name)
    return [_text(each, path, name, f"result {number} of {len(result)}") for number, each in enumerate(result, 1)]


def _text(result: object, path: str, name: str, which: str) -> str:
    """Return the field of one result as text, preceded by the turn's error if it failed."""
    value = result if isinstance(result, str) and path == "text" else _at(result, path)
    text = value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False, indent=2)
    said = "\n\n".join(each for each in (_failure(result), text) if each and each.strip())
    if not said:
        why = "or it is empty" if isinstance(result, Mapping) else f"which is {_kind(result)}"
        raise InvalidRequest(f"there is no {path} in {which}, {why}", field=name)
    return said


def _at(value: object, path: str) -> object:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _failure(result: object) -> str | None:
    """Return the error of a failed turn whose request has `failure: return`, or None."""
    error = result.get("error") if isinstance(result, Mapping) else None
    if not isinstance(error, Mapping):
        return None
    return f"It failed ({error.get('kind')}): {error.get('message')}"


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a JSON object")

"""Options that several commands share, and the request that they describe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from adapters.errors import InvalidRequest
from adapters.protocol.request import AUTO, TurnRequest
from adapters.protocol.session_request import SessionRequest
from ops.settings import Settings
from workers.agents.registry import build_registry

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")

_REQUEST = (
    click.argument("prompt", required=False),
    click.option(
        "--prompt-file", type=click.File("rb"), metavar="FILE", help="Read the prompt from a file; - is stdin."
    ),
    click.option("--workspace", "-C", metavar="DIR", help="Absolute path on the host. [default: this directory]"),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="PATH[:MOUNT_PATH]",
        help="Work in a copy of this file or directory of the worker's machine; see mount_roots.",
    ),
    click.option(
        "--worktree",
        metavar="REPO[@REF]",
        help="Work in a git worktree of this repository on the host. [REF: HEAD]",
    ),
    click.option("--collect-patch", is_flag=True, help="Bring home all changes in such a workspace, as a patch."),
    click.option("--collect", "files", multiple=True, metavar="GLOB", help="Bring home these files of it."),
    click.option("--keep-workspace", is_flag=True, default=None, help="Do not remove it when the turn is over."),
    click.option(
        "--agent", metavar="NAME", help="Which agent; auto: one that meets --need. [default: the configured one]"
    ),
    click.option(
        "--need",
        "needs",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="What the agent must offer: live, language=python, billing=subscription,api.",
    ),
    click.option("--plan", is_flag=True, default=None, help="Have a plan made of it, and nothing changed."),
    click.option("--host", metavar="NAME", help="Where to run. [default: the worker's choice]"),
    click.option(
        "--host-label", "host_labels", multiple=True, metavar="NAME=VALUE", help="Only on hosts with this label."
    ),
    click.option(
        "--on-host-lost",
        type=click.Choice(["same_host", "any_host", "never"]),
        help="Where to try again after a host was out of reach for too long. [default: same_host]",
    ),
    click.option("--resume", "session_id", metavar="SESSION", help="Continue the session of an earlier turn."),
    click.option("--model", "-m", metavar="NAME", help="Short for -o model=NAME."),
    click.option(
        "--option",
        "-o",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the agent: max_turns=50.",
    ),
    click.option("--label", "-l", "labels", multiple=True, metavar="NAME=VALUE", help="For accounting."),
    click.option(
        "--env", multiple=True, metavar="NAME", help="Let the agent see this variable of the worker's environment."
    ),
    click.option(
        "--output-schema", type=click.File("rb"), metavar="FILE", help="JSON Schema of the structured output."
    ),
    click.option("--turn-timeout-ms", type=int, metavar="MS", help="For one attempt."),
    click.option("--read-timeout-ms", type=int, metavar="MS", help="Until the first event."),
    click.option("--stall-timeout-ms", type=int, metavar="MS", help="Between two events; 0 turns it off."),
    click.option("--max-attempts", type=int, metavar="N", help="1: never try again."),
    click.option(
        "--max-paid-retries",
        type=int,
        metavar="N",
        help="Retries after attempts that were billed and failed in the same way. [default: 1]",
    ),
    click.option("--max-retry-backoff-ms", type=int, metavar="MS", help="The longest wait between two attempts."),
    click.option("--accept", "acceptance_criteria", multiple=True, metavar="TEXT", help="What has to be so."),
    click.option("--test", "test_commands", multiple=True, metavar="COMMAND", help="What has to succeed."),
    click.option("--context", "attached_context", multiple=True, metavar="TEXT", help="What else to know."),
)
_LIMITS = (
    click.option("--deadline", metavar="TIME", help="For the whole turn: 2026-12-01T18:00:00+01:00."),
    click.option("--max-total-tokens", type=int, metavar="N", help="Of one attempt, cached tokens included."),
    click.option("--max-cost-usd", type=float, metavar="USD", help="Of one attempt."),
    click.option("--turn-id", metavar="ID", help="Idempotency key. [default: a new one]"),
)
_SESSION = (
    click.option("--done-field", metavar="NAME", help="Done when this field of the structured output is true."),
    click.option("--check-timeout-ms", type=int, metavar="MS", help="For each test command."),
    click.option("--max-turns", type=int, metavar="N", help="In one agent session. [default: 20]"),
    click.option("--max-sessions", type=int, metavar="N", help="Agent sessions, the first included. [default: 1]"),
    click.option("--deadline", metavar="TIME", help="For all of it: 2026-12-01T18:00:00+01:00."),
    click.option("--max-total-tokens", type=int, metavar="N", help="Of all turns, cached tokens included."),
    click.option("--max-cost-usd", type=float, metavar="USD", help="Of all turns."),
    click.option("--run-id", metavar="ID", help="Idempotency key. [default: a new one]"),
)
_OF_SESSION = frozenset({
    "test_commands", "done_field", "check_timeout_ms", "max_turns", "max_sessions", "deadline", "max_total_tokens",
    "max_cost_usd", "run_id",
})  # fmt: skip
_OF_TASK = ("acceptance_criteria", "test_commands", "attached_context")


def request_options(command: F) -> F:
    """The options that describe a turn."""
    return _with(command, (*_REQUEST, *_LIMITS))


def session_options(command: F) -> F:
    """The options that describe a session of turns."""
    return _with(command, (*_REQUEST, *_SESSION))


def _with(command: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def build_request(settings: Settings, given: Mapping[str, Any]) -> TurnRequest:
    """A request from the command line's options, checked as a worker would. Raises InvalidRequest."""
    request = TurnRequest.parse(_document(settings, given))
    build_registry(settings).check(request)
    return request


def build_session(settings: Settings, given: Mapping[str, Any]) -> SessionRequest:
    """The same for a session of turns."""
    own = {name: value for name, value in given.items() if name in _OF_SESSION and value not in (None, ())}
    turn = {name: value for name, value in given.items() if name not in _OF_SESSION - {"test_commands"}}
    request = SessionRequest.parse({**own, "turn": _document(settings, turn)})
    build_registry(settings).check(request.turn)
    return request


def _document(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    document = {name: value for name, value in given.items() if value not in (None, ()) and value is not False}
    prompt = _prompt(document.pop("prompt", None), document.pop("prompt_file", None))
    in_parts = {name: document.pop(name) for name in _OF_TASK if name in document}
    document |= {"task": {"description": prompt, **in_parts}} if in_parts else {"prompt": prompt}
    document |= _brought(
        document.pop("mounts", ()),
        document.pop("worktree", None),
        {"patch": document.pop("collect_patch", False), "files": document.pop("files", ())},
    )
    if not document.keys() & {"mounts", "worktree"}:
        document.setdefault("workspace", str(Path.cwd()))
    if "needs" in document:
        document["needs"] = dict(_need(text) for text in document["needs"])
    document.setdefault("agent", AUTO if "needs" in document else settings.agent.kind)
    for field in ("labels", "host_labels"):
        document[field] = dict(pair(text, field) for text in document.get(field, ()))
    document["options"] = _options(document.get("options", ()), document.pop("model", None))
    if schema := document.get("output_schema"):
        document["output_schema"] = _json_object(schema.read())
    return document


def _need(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        return name, True
    return name, value.split(",") if name == "billing" else _value(value)


def pair(text: str, field: str) -> tuple[str, str]:
    """Read NAME=VALUE. Raises InvalidRequest."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidRequest(f"{text!r} is not of the form NAME=VALUE", field=field)
    return name, value


def _brought(mounts: tuple[str, ...], worktree: str | None, collect: dict[str, Any]) -> dict[str, Any]:
    """What the request says of a workspace that the turn brings."""
    fields: dict[str, Any] = {}
    if mounts:
        fields["mounts"] = [_mount(text) for text in mounts]
    if worktree is not None:
        repository, at, ref = worktree.rpartition("@")
        given = {"repository": repository, "ref": ref} if at else {"repository": worktree}
        fields["worktree"] = {**given, "repository": str(Path(given["repository"]).absolute())}
    if any(collect.values()):
        fields["collect"] = collect
    return fields


def _mount(text: str) -> dict[str, str]:
    path, _, place = text.partition(":")
    mount = {"host_path": str(Path(path).absolute())}
    return {**mount, "mount_path": place} if place else mount


def _prompt(text: str | None, file: Any) -> str:
    if (text is None) == (file is None):
        raise InvalidRequest("give it either as an argument or with --prompt-file", field="prompt")
    if text is not None:
        return text
    try:
        return str(file.read().decode())
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"is not UTF-8 at byte {error.start}; convert it first", field="prompt") from error


def _options(texts: tuple[str, ...], model: str | None) -> dict[str, Any]:
    options = {name: _value(value) for name, value in (pair(text, "options") for text in texts)}
    return options if model is None else {**options, "model": model}


def _value(text: str) -> Any:
    """A JSON value where it is one (numbers, true, lists), else the text itself."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    return text


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"is not JSON: {error}", field="output_schema") from error
    if not isinstance(value, dict):
        raise InvalidRequest("must be a JSON object that holds a JSON Schema", field="output_schema")
    return value

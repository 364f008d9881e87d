"""Options shared by several commands, and the request they describe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from adapters.errors import InvalidRequest
from adapters.isolation import Isolation, Network
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
    click.option(
        "--workspace", "-C", metavar="DIR", help="Absolute path on the host. [default: the current directory]"
    ),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="PATH[:MOUNT_PATH]",
        help="Copy this path from the worker's machine into the workspace (repeatable); see mount_roots.",
    ),
    click.option(
        "--worktree",
        metavar="REPO[@REF]",
        help="Work in a git worktree of this repository on the host. [default REF: HEAD]",
    ),
    click.option("--collect-patch", is_flag=True, help="Return all workspace changes as a patch."),
    click.option(
        "--collect", "files", multiple=True, metavar="GLOB", help="Return these workspace files (repeatable)."
    ),
    click.option("--keep-workspace", is_flag=True, default=None, help="Keep the workspace after the turn."),
    click.option(
        "--agent", metavar="NAME", help="Agent to run; auto: one that meets --need. [default: the configured one]"
    ),
    click.option(
        "--need",
        "needs",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Requirement (repeatable): live, language=python, billing=subscription,api.",
    ),
    click.option("--plan", is_flag=True, default=None, help="Plan only; make no changes."),
    click.option("--host", metavar="NAME", help="Host to run on. [default: the worker's choice]"),
    click.option(
        "--host-label",
        "host_labels",
        multiple=True,
        metavar="NAME=VALUE",
        help="Run only on hosts with this label (repeatable).",
    ),
    click.option(
        "--on-host-lost",
        type=click.Choice(["same_host", "any_host", "never"]),
        help="Where to retry after host_lost; never: do not retry. [default: same_host]",
    ),
    click.option(
        "--isolation",
        type=click.Choice([Isolation.NAMESPACE, Isolation.SANDBOX]),
        help="Minimum isolation of the agent. [default: the host's]",
    ),
    click.option(
        "--sandbox-network",
        type=click.Choice(list(Network)),
        help="none: run in a sandbox without network access. [default: the host's]",
    ),
    click.option("--max-memory", metavar="SIZE", help="Memory limit for the agent and its tools, such as 4GiB."),
    click.option("--max-processes", type=int, metavar="N", help="Process limit for the agent and its tools."),
    click.option("--max-disk", metavar="SIZE", help="Size limit for the files in a per-turn workspace."),
    click.option("--max-cpus", type=float, metavar="N", help="CPU limit, in cores; needs a host with systemd."),
    click.option(
        "--resume", "session_id", metavar="SESSION", help="Continue the agent session of an earlier turn."
    ),
    click.option("--model", "-m", metavar="NAME", help="Short for -o model=NAME."),
    click.option(
        "--option",
        "-o",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Agent option, such as max_turns=50 (repeatable).",
    ),
    click.option(
        "--label", "-l", "labels", multiple=True, metavar="NAME=VALUE", help="Label for accounting (repeatable)."
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME",
        help="Pass this variable of the worker's environment to the agent (repeatable).",
    ),
    click.option(
        "--output-schema", type=click.File("rb"), metavar="FILE", help="JSON Schema for structured output."
    ),
    click.option("--turn-timeout-ms", type=int, metavar="MS", help="Time limit for one attempt."),
    click.option("--read-timeout-ms", type=int, metavar="MS", help="Time limit for the first event."),
    click.option(
        "--stall-timeout-ms", type=int, metavar="MS", help="Time limit between two events; 0 disables it."
    ),
    click.option("--max-attempts", type=int, metavar="N", help="Maximum number of attempts; 1: no retries."),
    click.option(
        "--max-paid-retries",
        type=int,
        metavar="N",
        help="Retries after billed attempts that failed in the same way. [default: 1]",
    ),
    click.option("--max-retry-backoff-ms", type=int, metavar="MS", help="Longest wait between two attempts."),
    click.option(
        "--accept", "acceptance_criteria", multiple=True, metavar="TEXT", help="Acceptance criterion (repeatable)."
    ),
    click.option(
        "--test", "test_commands", multiple=True, metavar="COMMAND", help="Command that must succeed (repeatable)."
    ),
    click.option(
        "--context",
        "attached_context",
        multiple=True,
        metavar="TEXT",
        help="Additional context for the agent (repeatable).",
    ),
)
_LIMITS = (
    click.option(
        "--deadline", metavar="TIME", help="Deadline for the whole turn, such as 2026-12-01T18:00:00+01:00."
    ),
    click.option(
        "--max-total-tokens", type=int, metavar="N", help="Token limit for one attempt, including cached tokens."
    ),
    click.option("--max-cost-usd", type=float, metavar="USD", help="Cost limit for one attempt."),
    click.option("--turn-id", metavar="ID", help="Idempotency key. [default: a new one]"),
)
_SESSION = (
    click.option("--done-field", metavar="NAME", help="Done when this field of the structured output is true."),
    click.option("--check-timeout-ms", type=int, metavar="MS", help="Time limit for each test command."),
    click.option(
        "--max-turns", type=int, metavar="N", help="Maximum number of turns in one agent session. [default: 20]"
    ),
    click.option(
        "--max-sessions",
        type=int,
        metavar="N",
        help="Maximum number of agent sessions, including the first. [default: 1]",
    ),
    click.option("--deadline", metavar="TIME", help="Deadline for all turns, such as 2026-12-01T18:00:00+01:00."),
    click.option(
        "--max-total-tokens", type=int, metavar="N", help="Token limit across all turns, including cached tokens."
    ),
    click.option("--max-cost-usd", type=float, metavar="USD", help="Cost limit across all turns."),
    click.option("--run-id", metavar="ID", help="Idempotency key. [default: a new one]"),
)
_OF_SESSION = frozenset({
    "test_commands", "done_field", "check_timeout_ms", "max_turns", "max_sessions", "deadline", "max_total_tokens",
    "max_cost_usd", "run_id",
})  # fmt: skip
_OF_TASK = ("acceptance_criteria", "test_commands", "attached_context")


def request_options(command: F) -> F:
    """Add the options that describe a turn."""
    return _with(command, (*_REQUEST, *_LIMITS))


def session_options(command: F) -> F:
    """Add the options that describe a session of turns."""
    return _with(command, (*_REQUEST, *_SESSION))


def _with(command: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def build_request(settings: Settings, given: Mapping[str, Any]) -> TurnRequest:
    """Build a request from command-line options and check it as a worker would. Raise InvalidRequest."""
    request = TurnRequest.parse(_document(settings, given))
    build_registry(settings).check(request)
    return request


def build_session(settings: Settings, given: Mapping[str, Any]) -> SessionRequest:
    """Build and check the request for a session of turns. Raise InvalidRequest if it fails."""
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
    """Parse NAME=VALUE. Raise InvalidRequest if there is no `=`."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidRequest(f"{text!r} is not of the form NAME=VALUE", field=field)
    return name, value


def _brought(mounts: tuple[str, ...], worktree: str | None, collect: dict[str, Any]) -> dict[str, Any]:
    """Return the request fields for a workspace made for the turn."""
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
    """Return the text as a JSON value (number, true, list) if it is one, else unchanged."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    return text


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"is not JSON: {error}", field="output_schema") from error
    if not isinstance(value, dict):
        raise InvalidRequest("must be a JSON object with a JSON Schema", field="output_schema")
    return value

"""Commands about one turn: run, enqueue, watch, result, cancel."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from adapters.errors import InvalidRequest
from adapters.request import TurnRequest
from workers.agents import build_registry
from workers.cli.context import Context, pass_context
from workers.cli.show import INTERRUPTED, print_json, print_result
from workers.cli.view import show_live

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")


def request_options(command: F) -> F:
    """The options that describe a turn."""
    for option in reversed(
        (
            click.argument("prompt", required=False),
            click.option("--prompt-file", type=click.File("rb"), help="Read the prompt from here; - is stdin."),
            click.option("--workspace", "-C", help="Absolute path on the host. [default: this one]"),
            click.option("--agent", help="[default: claude-code]"),
            click.option("--host", help="Where to run. [default: any]"),
            click.option("--resume", "session_id", metavar="SESSION", help="Continue a session."),
            click.option("--model", "-m"),
            click.option(
                "--option", "-o", "options", multiple=True, metavar="NAME=VALUE", help="An agent's option."
            ),
            click.option("--label", "-l", "labels", multiple=True, metavar="NAME=VALUE", help="For accounting."),
            click.option("--env", multiple=True, metavar="NAME", help="A variable of the worker to forward."),
            click.option("--output-schema", type=click.File("rb"), help="JSON Schema of the structured output."),
            click.option("--turn-timeout-ms", type=int),
            click.option("--read-timeout-ms", type=int),
            click.option("--stall-timeout-ms", type=int),
            click.option("--deadline", help="ISO 8601 with an offset, such as 2026-12-01T18:00:00+01:00."),
            click.option("--max-total-tokens", type=int),
            click.option("--max-cost-usd", type=float),
            click.option("--max-attempts", type=int),
            click.option("--turn-id", help="Idempotency key. [default: a new one]"),
        )
    ):
        command = option(command)
    return command


@click.command()
@request_options
@json_option
@pass_context
def run(context: Context, /, as_json: bool, **given: Any) -> int:
    """Queue a turn, show it live, and wait for its result.

    Ctrl-C cancels the turn; a second one leaves it to its worker.
    """
    request = build_request(context, given)
    context.require_worker()
    turn_id = context.client.enqueue(request)
    interrupted = _follow(context, turn_id, quiet=as_json)
    status = print_result(context.client.result(turn_id), as_json=as_json)
    return INTERRUPTED if interrupted else status


@click.command()
@request_options
@json_option
@pass_context
def enqueue(context: Context, /, as_json: bool, **given: Any) -> int:
    """Queue a turn and print its id."""
    turn_id = context.client.enqueue(build_request(context, given))
    if as_json:
        print_json({"turn_id": turn_id})
    else:
        click.echo(turn_id)
    return 0


@click.command()
@click.argument("turn_id")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, one line an event.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Skip events up to this number.")
@pass_context
def watch(context: Context, turn_id: str, as_json: bool, after: int) -> int:
    """Show a turn's events, past and to come, until it ends."""
    context.ledger.turn(turn_id)
    events = context.client.events(turn_id, after)
    if not as_json:
        show_live(events)
        return 0
    for event in events:
        sys.stdout.buffer.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.flush()
    return 0


@click.command()
@click.argument("turn_id")
@click.option("--timeout", type=float, help="Seconds to wait. [default: for ever]")
@json_option
@pass_context
def result(context: Context, turn_id: str, timeout: float | None, as_json: bool) -> int:
    """Wait for a turn's result and print it."""
    context.ledger.turn(turn_id)
    return print_result(context.client.result(turn_id, timeout), as_json=as_json)


@click.command()
@click.argument("turn_id")
@click.option("--wait/--no-wait", default=True, help="Until its agent has ended.")
@json_option
@pass_context
def cancel(context: Context, turn_id: str, wait: bool, as_json: bool) -> int:
    """End a turn and its agent. What it used is booked."""
    open_still = context.client.cancel(turn_id)
    ended = context.client.result(turn_id) if wait else None
    if as_json:
        document = ended.model_dump(mode="json") if ended else None
        print_json({"turn_id": turn_id, "cancelled": open_still, "result": document})
    else:
        click.echo(f"turn {turn_id} {'is cancelled' if open_still else 'had ended already'}")
    return 0


COMMANDS = (run, enqueue, watch, result, cancel)


def build_request(context: Context, given: dict[str, Any]) -> TurnRequest:
    """A request from the command line's options, checked as a worker would. Raises InvalidRequest."""
    document = {name: value for name, value in given.items() if value not in (None, ())}
    document["prompt"] = _prompt(document.pop("prompt", None), document.pop("prompt_file", None))
    document.setdefault("workspace", str(Path.cwd()))
    document["labels"] = dict(pair(label, "labels") for label in document.get("labels", ()))
    document["options"] = {name: _value(text) for name, text in _pairs(document.get("options", ()))}
    if model := document.pop("model", None):
        document["options"]["model"] = model
    if schema := document.get("output_schema"):
        document["output_schema"] = _json(schema.read())
    request = TurnRequest.parse(document)
    build_registry(context.settings).get(request.agent).check(request)
    return request


def _prompt(text: str | None, file: Any) -> str:
    if (text is None) == (file is None):
        raise InvalidRequest("give the prompt as an argument or with --prompt-file", field="prompt")
    if text is not None:
        return text
    try:
        return str(file.read().decode())
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"is not UTF-8 at byte {error.start}; convert it first", field="prompt") from error


def _pairs(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [pair(text, "options") for text in texts]


def pair(text: str, field: str) -> tuple[str, str]:
    """Read NAME=VALUE. Raises InvalidRequest."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidRequest(f"{text!r} is not of the form NAME=VALUE", field=field)
    return name, value


def _value(text: str) -> Any:
    """A JSON value where it is one (numbers, true, lists), else the text itself."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    return text


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"is not JSON: {error}", field="output_schema") from error


def _follow(context: Context, turn_id: str, *, quiet: bool) -> bool:
    """Show a turn until it ends; returns whether the user interrupted it."""
    events = context.client.events(turn_id)
    try:
        _consume(events, quiet)
    except KeyboardInterrupt:
        click.echo("cancelling the turn; Ctrl-C again to leave it running", err=True)
        context.client.cancel(turn_id)
        return True
    return False


def _consume(events: Any, quiet: bool) -> None:
    if quiet:
        for _ in events:
            pass
    else:
        show_live(events)

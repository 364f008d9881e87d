"""Commands that control a running agent: interrupt, send, set-model, answer and others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from adapters.errors import InvalidRequest
from adapters.live import Control, ControlRequest, Verdict
from workers.cli.context import Context, pass_context, turn_argument
from workers.cli.options import json_option
from workers.cli.output import print_json, printable
from workers.client.control import TIMEOUT_S

F = TypeVar("F", bound=Callable[..., Any])


def _said(command: F) -> F:
    """Add the options that all of these commands share."""
    for option in (
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0, min_open=True),
            default=TIMEOUT_S,
            show_default=True,
            metavar="S",
            help="Seconds to wait for the reply.",
        ),
        json_option,
    ):
        command = option(command)
    return command


def _request_id(command: F) -> F:
    option = click.option(
        "--request-id", metavar="ID", help="Idempotency key: repeated requests run once. [default: a new one]"
    )
    return option(command)


@click.command()
@turn_argument(single=True)
@_request_id
@_said
@pass_context
def interrupt(context: Context, /, turn_id: str, **given: Any) -> int:
    """Interrupt an agent and end its turn.

    Unlike with `runturn cancel`, the agent stops by itself and reports its own usage.
    """
    return _control(context, turn_id, ControlRequest(Control.INTERRUPT), "interrupted", **given)


@click.command()
@turn_argument(single=True)
@click.argument("text")
@_request_id
@_said
@pass_context
def send(context: Context, /, turn_id: str, text: str, **given: Any) -> int:
    """Send a message to a running agent.

    TEXT may be - for standard input. The agent reads it with its next request to the model.
    """
    request = ControlRequest(Control.SEND, _stdin() if text == "-" else text)
    return _control(context, turn_id, request, "has received the message", **given)


@click.group()
def control() -> None:
    """Reconfigure or inspect a running agent."""


@control.command("set-model")
@turn_argument(single=True)
@click.argument("model")
@_request_id
@_said
@pass_context
def set_model(context: Context, /, turn_id: str, model: str, **given: Any) -> int:
    """Switch a running agent to another model."""
    request = ControlRequest(Control.SET_MODEL, model)
    return _control(context, turn_id, request, f"switched to {model}", **given)


@control.command("set-permission-mode")
@turn_argument(single=True)
@click.argument("mode")
@_request_id
@_said
@pass_context
def set_permission_mode(context: Context, /, turn_id: str, mode: str, **given: Any) -> int:
    """Switch a running agent to another permission mode."""
    request = ControlRequest(Control.SET_PERMISSION_MODE, mode)
    return _control(context, turn_id, request, f"switched to mode {mode}", **given)


@control.command("server-info")
@turn_argument(single=True)
@_said
@pass_context
def server_info(context: Context, /, turn_id: str, **given: Any) -> int:
    """Show a running agent's capabilities, as JSON."""
    return _control(context, turn_id, ControlRequest(Control.SERVER_INFO), None, **given)


@control.command("context")
@turn_argument(single=True)
@_said
@pass_context
def context_usage(context: Context, /, turn_id: str, **given: Any) -> int:
    """Show a running agent's context usage, as JSON."""
    return _control(context, turn_id, ControlRequest(Control.CONTEXT_USAGE), None, **given)


@click.command()
@turn_argument(single=True)
@click.argument("request_id", metavar="QUESTION")
@click.argument("answer", type=click.Choice(["allow", "deny"]))
@click.option("--reason", default="", metavar="TEXT", help="Reason given to the agent.")
@_said
@pass_context
def answer(
    context: Context,
    turn_id: str,
    request_id: str,
    answer: str,
    reason: str,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Answer an agent's request to use a tool.

    `runturn watch` shows these requests. The first answer counts; after a timeout, the turn's default applies.
    """
    verdict = Verdict(answer == "allow", reason)
    document = context.client.answer(turn_id, request_id, verdict, timeout_s=timeout_s)
    if as_json:
        print_json(document)
    else:
        click.echo(f"turn {turn_id}: {request_id} is {'allowed' if verdict.allowed else 'denied'}")
    return 0


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"is not UTF-8 at byte {error.start}; convert it first", field="text") from error


def _control(
    context: Context,
    turn_id: str,
    request: ControlRequest,
    done: str | None,
    timeout_s: float,
    as_json: bool,
    request_id: str | None = None,
) -> int:
    """Send the request and print `done` on success; if `done` is None, print the reply itself."""
    response = context.client.control(turn_id, request, request_id=request_id, timeout_s=timeout_s)
    if as_json or done is None:
        print_json(response)
    else:
        click.echo(printable(f"turn {turn_id} {done}"))
    return 0

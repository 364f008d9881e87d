"""Commands for messages that no worker could read: `runturn dead list|show|retry|remove`."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from dataclasses import asdict

import click
from kombu.exceptions import OperationalError

from ops.ledger import DeadLetter, DeadLetterRow
from workers.cli.context import Context, pass_context
from workers.cli.options import json_option
from workers.cli.output import number, print_json, print_table, printable
from workers.errors import BrokerUnavailable
from workers.worker.dead_letters import send_again

_ALL = 10_000
_SHOWN_BYTES = 4096

_ids = click.argument("ids", nargs=-1, metavar="[ID]...")
_all = click.option("--all", "every", is_flag=True, help="All of them.")


@click.group()
def dead() -> None:
    """Look after messages that no worker could read.

    Workers put them aside, with the reason: a body that is no JSON, a task that is not ours, a request of a newer
    runturn, or one that RabbitMQ gave up on. Their turns have not run.
    """


@dead.command("list")
@click.option(
    "--limit", type=click.IntRange(1, _ALL), default=20, show_default=True, metavar="N", help="How many."
)
@json_option
@pass_context
def list_(context: Context, limit: int, as_json: bool) -> int:
    """List them, the newest first."""
    rows = context.ledger.dead_letters.newest(limit)
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    print_table(("id", "received", "task", "bytes", "reason"), (_cells(row) for row in rows), right=("bytes",))
    return 0


@dead.command()
@click.argument("letter_id", metavar="ID")
@json_option
@pass_context
def show(context: Context, letter_id: str, as_json: bool) -> int:
    """Show one of them, with its body."""
    letter = _find(context, letter_id)
    if as_json:
        print_json({**asdict(letter.row), **_body(letter)})
        return 0
    for name, value in asdict(letter.row).items():
        click.echo(printable(f"{name:<17} {'' if value is None else value}"))
    click.echo()
    body = letter.body or b""
    click.echo(printable(body[:_SHOWN_BYTES].decode(errors="replace")))
    if len(body) > _SHOWN_BYTES:
        click.echo(f"… and {number(len(body) - _SHOWN_BYTES)} bytes more; --json has all of them", err=True)
    return 0


@dead.command()
@_ids
@_all
@pass_context
def retry(context: Context, ids: tuple[str, ...], every: bool) -> int:
    """Queue them again as they were, say after an upgrade. A message that still cannot be read comes back."""
    letters = context.ledger.dead_letters
    for letter in [_find(context, letter_id) for letter_id in ids] if ids else _each(context, every):
        letter_id = letter.row.letter_id
        try:
            # First this: killed in between, the message is sent twice, and its turn runs once all the same.
            send_again(context.app, letter)
        except OperationalError as error:
            raise BrokerUnavailable(f"{letter_id} could not be queued: {error}") from error
        except ValueError as error:
            raise click.UsageError(
                f"{letter_id} cannot be queued again: {error}; have its producer send it"
            ) from error
        letters.sent_again(letter.row)
        click.echo(f"{letter_id} is queued again")
    return 0


@dead.command()
@_ids
@_all
@pass_context
def remove(context: Context, ids: tuple[str, ...], every: bool) -> int:
    """Forget them for good."""
    for letter_id in ids or [row.letter_id for row in _rows(context, every)]:
        if not context.ledger.dead_letters.remove(letter_id):
            raise _unknown(letter_id)
        click.echo(f"{letter_id} is removed")
    return 0


def _each(context: Context, every: bool) -> Iterator[DeadLetter]:
    """All of them, one at a time: together they may not fit into memory."""
    for row in _rows(context, every):
        letter = context.ledger.dead_letters.find(row.letter_id)
        if letter is not None:
            yield letter


def _rows(context: Context, every: bool) -> list[DeadLetterRow]:
    if not every:
        raise click.UsageError("name the messages by their ids, or say --all; runturn dead list has the ids")
    return context.ledger.dead_letters.newest(_ALL)


def _find(context: Context, letter_id: str) -> DeadLetter:
    letter = context.ledger.dead_letters.find(letter_id)
    if letter is None:
        raise _unknown(letter_id)
    return letter


def _unknown(letter_id: str) -> click.UsageError:
    return click.UsageError(f"there is no dead letter {letter_id!r}; runturn dead list names them")


def _cells(row: DeadLetterRow) -> tuple[str, ...]:
    received = time.strftime("%m-%d %H:%M:%S", time.localtime(row.received_at))
    line = " ".join(printable(row.reason).split())
    return row.letter_id, received, printable(row.task_id or ""), number(row.body_bytes), line


def _body(letter: DeadLetter) -> dict[str, str | None]:
    """The body as text where it is text, else in base64."""
    if letter.body is None:
        return {"body": None, "body_base64": None}
    try:
        return {"body": letter.body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": base64.b64encode(letter.body).decode()}

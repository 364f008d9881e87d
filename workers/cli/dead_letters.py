"""Commands for dead letters: `runturn dead list|show|retry|remove`."""

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
from workers.cli.output import Column, counted, number, print_json, print_table, printable
from workers.errors import BrokerUnavailable
from workers.turn.budget_messages import moment
from workers.worker.dead_letters import send_again

_ALL = 10_000
_SHOWN_BYTES = 4096
_LETTERS = (Column("id"), Column("received"), Column("task"), Column("bytes", right=True), Column("reason"))

_ids = click.argument("ids", nargs=-1, metavar="[ID]...")
_all = click.option("--all", "every", is_flag=True, help="All dead letters.")


@click.group()
def dead() -> None:
    """Manage messages that no worker could read.

    Workers set them aside with the reason: a body that is not JSON, an unknown task, a request from a newer
    runturn, or a message that RabbitMQ gave up on. Their turns have not run.
    """


@dead.command("list")
@click.option(
    "--limit", type=click.IntRange(1, _ALL), default=20, show_default=True, metavar="N", help="Show at most N."
)
@json_option
@pass_context
def list_(context: Context, limit: int, as_json: bool) -> int:
    """List dead letters, newest first."""
    rows = context.ledger.dead_letters.newest(limit)
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    print_table(_LETTERS, map(_cells, rows), "no dead letters")
    return 0


@dead.command()
@click.argument("letter_id", metavar="ID")
@json_option
@pass_context
def show(context: Context, letter_id: str, as_json: bool) -> int:
    """Show one dead letter with its body."""
    letter = _find(context, letter_id)
    if as_json:
        print_json({**asdict(letter.row), **_body(letter)})
        return 0
    for name, value in (asdict(letter.row) | {"received_at": moment(letter.row.received_at)}).items():
        click.echo(printable(f"{name:<17} {'' if value is None else value}"))
    click.echo()
    body = letter.body or b""
    click.echo(printable(body[:_SHOWN_BYTES].decode(errors="replace")))
    if len(body) > _SHOWN_BYTES:
        click.echo(f"… and {counted(len(body) - _SHOWN_BYTES, 'more byte')}; --json shows all", err=True)
    return 0


@dead.command()
@_ids
@_all
@pass_context
def retry(context: Context, ids: tuple[str, ...], every: bool) -> int:
    """Requeue messages unchanged, for example after an upgrade.

    A message that is still unreadable becomes a dead letter again.
    """
    _check_choice(ids, every)
    letters = context.ledger.dead_letters
    for letter in [_find(context, letter_id) for letter_id in ids] if ids else _each(context):
        letter_id = letter.row.letter_id
        try:
            # Send first: if killed in between, the message is sent twice, but its turn runs once.
            send_again(context.app, letter)
        except OperationalError as error:
            raise BrokerUnavailable(f"{letter_id} could not be requeued: {error}") from error
        except ValueError as error:
            raise click.UsageError(
                f"{letter_id} cannot be requeued: {error}; send it again from its producer"
            ) from error
        letters.sent_again(letter.row)
        click.echo(f"{letter_id} requeued")
    return 0


@dead.command()
@_ids
@_all
@pass_context
def remove(context: Context, ids: tuple[str, ...], every: bool) -> int:
    """Delete messages permanently."""
    _check_choice(ids, every)
    for letter_id in ids or [row.letter_id for row in _rows(context)]:
        if not context.ledger.dead_letters.remove(letter_id):
            raise _unknown(letter_id)
        click.echo(f"{letter_id} removed")
    return 0


def _check_choice(ids: tuple[str, ...], every: bool) -> None:
    if every and ids:
        raise click.UsageError("give either ids or --all, not both")
    if not every and not ids:
        raise click.UsageError("give the ids of messages, or --all; for the ids, see: runturn dead list")


def _each(context: Context) -> Iterator[DeadLetter]:
    """Yield all dead letters one at a time: together they may not fit into memory."""
    for row in _rows(context):
        letter = context.ledger.dead_letters.find(row.letter_id)
        if letter is not None:
            yield letter


def _rows(context: Context) -> list[DeadLetterRow]:
    return context.ledger.dead_letters.newest(_ALL)


def _find(context: Context, letter_id: str) -> DeadLetter:
    letter = context.ledger.dead_letters.find(letter_id)
    if letter is None:
        raise _unknown(letter_id)
    return letter


def _unknown(letter_id: str) -> click.UsageError:
    return click.UsageError(f"there is no dead letter {letter_id!r}; see: runturn dead list")


def _cells(row: DeadLetterRow) -> tuple[str, ...]:
    received = time.strftime("%m-%d %H:%M:%S", time.localtime(row.received_at))
    line = " ".join(printable(row.reason).split())
    return row.letter_id, received, printable(row.task_id or ""), number(row.body_bytes), line


def _body(letter: DeadLetter) -> dict[str, str | None]:
    """Return the body as text if it is UTF-8, else as base64."""
    if letter.body is None:
        return {"body": None, "body_base64": None}
    try:
        return {"body": letter.body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": base64.b64encode(letter.body).decode()}

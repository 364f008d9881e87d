"""Commands for one turn: run, enqueue, watch, result, cancel."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from workers.cli.context import Context, pass_context, turn_argument
from workers.cli.exit_codes import INTERRUPTED
from workers.cli.live_view import show_live
from workers.cli.options import build_request, json_option, request_options
from workers.cli.output import exit_status, print_events, print_json, print_result
from workers.cli.session import follow_session, session_status, show_session
from workers.errors import RunturnError


@click.command()
@request_options
@json_option
@pass_context
def run(context: Context, /, as_json: bool, **given: Any) -> int:
    """Queue a turn, show it live, and wait for its result.

    Ctrl-C cancels the turn; a second Ctrl-C stops waiting for it.
    """
    request = build_request(context.settings, given)
    context.require_worker()
    turn_id = context.client.enqueue(request)
    try:
        interrupted = _follow(context, turn_id, quiet=as_json)
        result = context.client.result(turn_id)
    except KeyboardInterrupt:
        click.echo(f"no longer waiting for the turn; see: runturn result {turn_id}", err=True)
        return INTERRUPTED
    status = print_result(result, as_json=as_json)
    return INTERRUPTED if interrupted else status


@click.command()
@request_options
@json_option
@pass_context
def enqueue(context: Context, /, as_json: bool, **given: Any) -> int:
    """Queue a turn and print its id.

    It runs when a worker claims it; see `runturn watch` and `runturn result`.
    """
    request = build_request(context.settings, given)
    turn_id = context.client.enqueue(request)
    if as_json:
        print_json({"turn_id": turn_id})
    else:
        click.echo(turn_id)
    return 0


@click.command()
@turn_argument(to_read=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["live", "markdown", "jsonl"]),
    default="live",
    help="Output for a terminal, for a chat thread or log, or for programs. [default: live]",
)
@click.option("--jsonl", "form", flag_value="jsonl", help="Short for --format jsonl: one JSON object per line.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Skip events up to this number.")
@pass_context
def watch(context: Context, turn_id: str, form: str, after: int) -> int:
    """Show a turn's events, past and future, until it ends.

    In the live format, prints the result at the end. Exits with the turn's status. For a session of turns, shows
    the events of all its turns.
    """
    if context.ledger.session_runs.find(turn_id) is not None:
        if after:
            raise click.UsageError(
                "--after is for a single turn: in a session of turns, the events of each turn are numbered from 1"
            )
        return _watch_session(context, turn_id, form)
    context.ledger.reports.turn(turn_id)
    if context.ledger.reports.result(turn_id) is None:
        context.warn_without_worker()
    with closing(context.reader.events(turn_id, after)) as events:
        if form == "live":
            clock, waits_for = context.ledger.clock, context.waits_for(turn_id)
            show_live(events, context.price, clock, turn_id=turn_id, waits_for=waits_for)
            return print_result(context.reader.result(turn_id), as_json=False)
        print_events(events, form)
    return exit_status(context.reader.result(turn_id))


def _watch_session(context: Context, run_id: str, form: str) -> int:
    if form == "live":
        follow_session(context, run_id)
        return show_session(context.reader.session_result(run_id), as_json=False)
    for turn_id in context.reader.session_turns(run_id):
        with closing(context.reader.events(turn_id)) as events:
            print_events(events, form)
    return session_status(context.reader.session_result(run_id))


@click.command()
@turn_argument(to_read=True)
@click.option("--timeout", type=float, metavar="S", help="Seconds to wait. [default: forever]")
@json_option
@pass_context
def result(context: Context, turn_id: str, timeout: float | None, as_json: bool) -> int:
    """Wait for a turn's result and print it.

    Exits with the status of the turn, or of the session of turns; 3 if it did not finish in time.
    """
    if context.ledger.session_runs.find(turn_id) is not None:
        return show_session(context.reader.session_result(turn_id, timeout), as_json=as_json)
    context.ledger.reports.turn(turn_id)
    if timeout is None and context.ledger.reports.result(turn_id) is None:
        context.warn_without_worker()
    return print_result(context.reader.result(turn_id, timeout), as_json=as_json)


@click.command()
@turn_argument()
@click.option("--wait/--no-wait", default=True, help="Wait until the agent is terminated. [default: wait]")
@json_option
@pass_context
def cancel(context: Context, turn_id: str, wait: bool, as_json: bool) -> int:
    """Cancel a turn and terminate its agent.

    Its usage is booked. Cancelling twice or too late has no effect. For a session of turns, cancels the current
    turn and starts no other.
    """
    was_open = context.reader.cancel(turn_id)
    session = context.ledger.session_runs.find(turn_id)
    if session is not None:
        turn_id = session.turn or turn_id
    if wait and context.ledger.reports.result(turn_id) is None:
        _require_worker(context, turn_id)
        if not as_json:
            click.echo("cancelling the turn; waiting until it ends (Ctrl-C stops waiting)", err=True)
    ended = context.reader.result(turn_id) if wait else None
    if as_json:
        document = ended.model_dump(mode="json") if ended else None
        print_json({"turn_id": turn_id, "was_open": was_open, "result": document})
    elif ended is not None:
        click.echo(f"turn {turn_id} {'ended' if was_open else 'had already ended'}: {ended.status}")
    else:
        click.echo(f"turn {turn_id} {'is being cancelled' if was_open else 'had already ended'}")
    return 0


def _require_worker(context: Context, turn_id: str) -> None:
    """Raise if there is none: only a worker can terminate the agent and book its usage."""
    try:
        context.require_worker()
    except RunturnError as error:
        raise type(error)(f"turn {turn_id} is cancelled once a worker is running: {error}") from error


def _follow(context: Context, turn_id: str, *, quiet: bool) -> bool:
    """Show a turn until it ends. Return True if the user interrupted it."""
    try:
        with closing(context.client.events(turn_id)) as events:
            if quiet:
                for _ in events:
                    pass
            else:
                clock, waits_for = context.ledger.clock, context.waits_for(turn_id)
                show_live(events, context.price, clock, turn_id=turn_id, waits_for=waits_for)
    except KeyboardInterrupt:
        context.client.cancel(turn_id)
        click.echo("cancelling the turn; press Ctrl-C again to stop waiting", err=True)
        return True
    return False

"""The command `session`, and the display of sessions of turns for other commands."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from adapters.errors import InvalidRequest
from adapters.protocol.session_result import SessionResult, SessionStatus
from workers.cli.context import Context, pass_context
from workers.cli.exit_codes import BAD_INPUT, COMPLETED, FAILED, INTERRUPTED
from workers.cli.live_view import show_live
from workers.cli.options import build_session, json_option, session_options
from workers.cli.output import print_json, print_session


@click.command()
@session_options
@json_option
@pass_context
def session(context: Context, /, as_json: bool, **given: Any) -> int:
    """Repeat turns in one agent session until tests pass.

    After each turn, the tests run in the workspace on its host; their failures become the next turn's prompt.
    Ctrl-C cancels the session of turns; a second Ctrl-C stops waiting for it.
    """
    request = build_session(context.settings, given)
    context.require_worker()
    run_id = context.client.enqueue_session(request)
    try:
        interrupted = _follow(context, run_id, quiet=as_json)
        result = context.client.session_result(run_id)
    except KeyboardInterrupt:
        click.echo(f"no longer waiting for the session of turns; see: runturn result {run_id}", err=True)
        return INTERRUPTED
    status = show_session(result, as_json=as_json)
    return INTERRUPTED if interrupted else status


def show_session(result: SessionResult, *, as_json: bool) -> int:
    """Print a session's result and return the matching exit status."""
    if as_json:
        print_json(result)
    else:
        print_session(result)
    return session_status(result)


def session_status(result: SessionResult) -> int:
    """Return 0 if done, 2 for bad input, else 1."""
    if result.status is SessionStatus.DONE:
        return COMPLETED
    return BAD_INPUT if result.reason == InvalidRequest.kind else FAILED


def follow_session(context: Context, run_id: str) -> None:
    """Show one turn after another until the session ends."""
    for turn_id in context.reader.session_turns(run_id):
        click.echo(f"▸ turn {turn_id}", err=True)
        with closing(context.reader.events(turn_id)) as events:
            clock, waits_for = context.ledger.clock, context.waits_for(turn_id)
            show_live(events, context.price, clock, turn_id=turn_id, waits_for=waits_for)


def _follow(context: Context, run_id: str, *, quiet: bool) -> bool:
    """Show or await the session. Return True if the user interrupted it."""
    try:
        if quiet:
            context.client.session_result(run_id)
        else:
            follow_session(context, run_id)
    except KeyboardInterrupt:
        context.client.cancel(run_id)
        click.echo("cancelling the session of turns; press Ctrl-C again to stop waiting", err=True)
        return True
    return False

"""The command `transcript`: what a turn did, from the archive."""

from __future__ import annotations

import sys

import click
import orjson
from rich.console import Console

from ops.errors import NoTranscript, UnknownTurn
from ops.ledger import State
from ops.transcripts import Archive, read_lines
from workers.cli.context import Context, pass_context
from workers.cli.live_view import show_past
from workers.cli.output import print_events


@click.command()
@click.argument("turn_id")
@click.option("--raw", is_flag=True, help="Print it as it is stored: one JSON object a line.")
@click.option("--markdown", is_flag=True, help="Print it for a chat thread or a log.")
@pass_context
def transcript(context: Context, turn_id: str, raw: bool, markdown: bool) -> int:
    """Show what a turn did and wrote to stderr, from the archive.

    That is kept where RUNTURN_TRANSCRIPTS_URL says, also for turns that the ledger has forgotten.
    """
    url = context.settings.transcripts_url
    if url is None:
        raise NoTranscript(
            "no transcripts are kept: RUNTURN_TRANSCRIPTS_URL is not set. "
            f"The events that the ledger still has: runturn watch {turn_id}"
        )
    archive = Archive.at(url.get_secret_value())
    try:
        settled_at, known = _settled_at(context, turn_id), True
    except UnknownTurn:
        settled_at, known = None, False
    stored = archive.read(turn_id, settled_at)
    if stored is None:
        hint = (
            f"if it has just ended, try again; its events: runturn watch {turn_id}"
            if known
            else "the ledger has no such turn"
        )
        raise NoTranscript(f"there is no transcript of {turn_id} at {archive.name}; {hint}")
    lines = read_lines(stored)
    if raw:
        sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
        sys.stdout.flush()
    elif markdown:
        print_events(map(orjson.loads, lines), "markdown")
    else:
        show_past(map(orjson.loads, lines), context.price, Console(highlight=False))
    return 0


def _settled_at(context: Context, turn_id: str) -> float | None:
    """When the turn was settled; None: look everywhere. Raises UnknownTurn, and NoTranscript for one that runs."""
    turn = context.ledger.reports.turn(turn_id)
    if turn.state is not State.SETTLED:
        raise NoTranscript(f"turn {turn_id} has not ended yet; see: runturn watch {turn_id}")
    return turn.settled_at

"""The command `transcript`: a turn's events and stderr from the archive."""

from __future__ import annotations

import sys

import click
import orjson
from rich.console import Console

from ops.errors import NoTranscript, UnknownTurn
from ops.ledger import State
from ops.transcripts import Archive, read_lines
from workers.cli.context import Context, pass_context, turn_argument
from workers.cli.live_view import show_past
from workers.cli.output import print_events


@click.command()
@turn_argument(single=True, to_read=True)
@click.option("--raw", is_flag=True, help="Print it as stored: one JSON object per line.")
@click.option("--markdown", is_flag=True, help="Print it as Markdown for a chat thread or a log.")
@pass_context
def transcript(context: Context, turn_id: str, raw: bool, markdown: bool) -> int:
    """Show a turn's archived events and stderr.

    Reads the archive at RUNTURN_TRANSCRIPTS_URL, which also keeps turns that are no longer in the ledger.
    """
    url = context.settings.transcripts_url
    if url is None:
        raise NoTranscript(
            "no transcripts are kept: RUNTURN_TRANSCRIPTS_URL is not set. "
            f"For events still in the ledger: runturn watch {turn_id}"
        )
    archive = Archive.at(url.get_secret_value())
    try:
        settled_at, known = _settled_at(context, turn_id), True
    except UnknownTurn:
        settled_at, known = None, False
    stored = archive.read(turn_id, settled_at)
    if stored is None:
        hint = (
            f"if it has just ended, try again; for its events: runturn watch {turn_id}"
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
    """Return when the turn was settled; None: search everywhere. Raise UnknownTurn, or NoTranscript if open."""
    turn = context.ledger.reports.turn(turn_id)
    if turn.state is not State.SETTLED:
        raise NoTranscript(f"turn {turn_id} has not ended yet; see: runturn watch {turn_id}")
    return turn.settled_at

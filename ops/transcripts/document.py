"""Transcripts as bytes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import orjson

from ops.errors import ArchiveUnavailable
from ops.ledger import TranscriptSource


def compose(source: TranscriptSource) -> bytes:
    """Return a turn's compressed transcript. The same turn always gives the same bytes."""
    return gzip.compress(b"\n".join(_lines(source)) + b"\n", compresslevel=6, mtime=0)


def read_lines(transcript: bytes) -> list[bytes]:
    """Return a transcript's lines, one JSON object each. Raises ArchiveUnavailable if it is damaged."""
    try:
        lines = gzip.decompress(transcript).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveUnavailable(f"the transcript is damaged: {error}") from error
    if not lines:
        raise ArchiveUnavailable("the transcript is damaged: it is empty")
    return lines


def _lines(source: TranscriptSource) -> Iterator[bytes]:
    yield orjson.dumps(
        {
            "event": "transcript",
            "version": 1,
            "at": source.created_at,
            "turn_id": source.turn_id,
            "agent": source.agent,
            "host": source.host,
            "session_id": source.session_id,
            "attempts": source.attempt,
            "settled_at": source.settled_at,
            "status": source.status,
            "error_kind": source.error_kind,
        }
    )
    yield from source.events
    for attempt, text in source.stderr.items():
        written = text.decode(errors="replace")
        yield orjson.dumps({"event": "stderr", "at": source.settled_at, "attempt": attempt, "text": written})

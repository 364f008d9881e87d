"""Transcripts of turns, stored outside the ledger in a directory or at any URL that fsspec supports.

A transcript is gzipped JSON lines. The first line, `transcript`, identifies the turn; the turn's events follow as
stored in the ledger, then one `stderr` line for each attempt that wrote any.
"""

from ops.transcripts.archive import Archive
from ops.transcripts.document import compose, read_lines

__all__ = ["Archive", "compose", "read_lines"]

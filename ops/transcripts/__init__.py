"""Transcripts: what turns said, kept outside the ledger, in a directory or at any URL that fsspec knows.

A transcript is JSON lines in gzip. The first line is `transcript`, which says whose it is; then come the turn's
events as the ledger has them; then one line `stderr` for each attempt that wrote any.
"""

from ops.transcripts.archive import Archive
from ops.transcripts.document import compose, read_lines

__all__ = ["Archive", "compose", "read_lines"]

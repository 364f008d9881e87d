"""Processes on hosts: turns that outlive the channels they are followed over.

A `Host` opens shell channels. Over a channel, `follow` starts a detached turn in a `Spool` on that host and
follows its output from any offset; losing the channel loses only the attachment. Start reading at `follower`, and
at `scripts/` for the host's end.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # applications configure logging

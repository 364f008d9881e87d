"""Where a process runs: hosts, and turns that outlive the channel to them.

A `Host` opens shell channels. Over such a channel, `follow` starts a turn in a `Spool` on that host, detached, and
follows its output from any offset; what is lost is only ever an attachment. Start reading at `follower`, and at
`scripts/` for the far end.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever wants to read it, configures it

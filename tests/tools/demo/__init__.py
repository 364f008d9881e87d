"""`make demo`: three turns of the real Claude Code through the queue, and the bill against the books."""

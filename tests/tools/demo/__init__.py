"""`make demo`: three turns of the real Claude Code through the queue; compares the bill with the ledger."""

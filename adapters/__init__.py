"""A coding agent as pure values: requests, commands, events, results and errors.

No code in this package starts a process, reads a clock or uses the network. Start reading at `contract`.
"""

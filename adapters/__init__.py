"""What a coding agent is: requests, commands, events, results and errors, as pure values.

Nothing in this room starts a process, reads a clock or talks to a network. Start reading at `contract`.
"""

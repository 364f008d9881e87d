"""Claude Code as a live turn, driven by the Claude Agent SDK.

`adapter` has the parts, `options` the options, `policy` the tool permissions, `conversation` the conversation with
the agent, `transport` the SDK's transport, `parser` the events of the control protocol.
"""

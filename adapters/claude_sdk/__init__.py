"""Claude Code as a live turn, led with the Claude Agent SDK.

`adapter` has the parts, `options` the options, `policy` who may use which tool, `conversation` the talk with the
agent, `transport` how the SDK's words travel, `parser` the events of the control protocol.
"""

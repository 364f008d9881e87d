"""Codex: `adapter` has the parts, `options` the flags, `parser` the events, `rollout` the bill.

`judge` tells success from failure, `faults` one failure from another.
"""

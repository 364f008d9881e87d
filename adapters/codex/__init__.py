"""Codex: `adapter` has the parts, `options` the flags, `parser` the events, `rollout` the bill.

`judge` decides between success and failure, `faults` classifies failures.
"""

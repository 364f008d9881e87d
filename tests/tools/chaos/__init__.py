"""Chaos: hundreds of turns while everything around them is killed, restarted and cut off, and an audit."""

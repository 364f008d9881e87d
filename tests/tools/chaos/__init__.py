"""Chaos test: hundreds of turns while everything around them is killed, restarted and cut off, then an audit."""

"""Benchmarks and the goals they must meet: `python -m tests.tools.bench`."""

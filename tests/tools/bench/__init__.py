"""Measurements, and the goals they have to hold: `python -m tests.tools.bench`."""

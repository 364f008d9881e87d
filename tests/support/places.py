"""Paths in a checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
DATA = TESTS / "data"
RECORDINGS = DATA / "claude-code"

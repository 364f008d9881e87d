"""Coroutine tests, a recording, and the same examples on every run: a red test stays red."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.coroutines import pytest_pyfunc_call
from tests.support.places import RECORDINGS

__all__ = ["pytest_pyfunc_call"]

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture
def recording() -> Path:
    """A turn with two parallel tools."""
    return RECORDINGS / "a_parallel_tools.jsonl"

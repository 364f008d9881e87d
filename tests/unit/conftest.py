"""Coroutine tests, and a recording."""

from pathlib import Path

import pytest

from tests.support.coroutines import pytest_pyfunc_call
from tests.support.places import RECORDINGS

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture
def recording() -> Path:
    """A turn with two parallel tools."""
    return RECORDINGS / "a_parallel_tools.jsonl"

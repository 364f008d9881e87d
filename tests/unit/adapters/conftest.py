"""The same examples on every run: a red test stays red. Coroutines are tests, too."""

from hypothesis import HealthCheck, settings

from tests.support.coroutines import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

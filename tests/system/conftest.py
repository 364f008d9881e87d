"""The fixtures of integration tests."""

from tests.integration.conftest import fleet, pytest_pyfunc_call, rabbitmq, recording, unforked, vhost

__all__ = ["fleet", "pytest_pyfunc_call", "rabbitmq", "recording", "unforked", "vhost"]

"""Command for tests that start pytest, without plugins that take longer to import than such a run."""

from __future__ import annotations

import sys
from typing import Final

_UNUSED: Final = ("anyio", "hypothesispytest", "platformdirs", "valkey")
PYTEST: Final = (sys.executable, "-m", "pytest", *(word for name in _UNUSED for word in ("-p", f"no:{name}")))

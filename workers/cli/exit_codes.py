"""Exit statuses of the commands."""

from __future__ import annotations

from typing import Final

COMPLETED: Final = 0
FAILED: Final = 1  # the turn failed or was cancelled; `doctor` found a problem
BAD_INPUT: Final = 2  # the request, an option or a setting is invalid
NO_SERVICE: Final = 3  # no broker, ledger or worker answers in time
INTERRUPTED: Final = 130  # Ctrl-C, by shell convention

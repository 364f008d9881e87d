"""What the exit status of a command means."""

from __future__ import annotations

from typing import Final

COMPLETED: Final = 0
FAILED: Final = 1  # the turn failed or was cancelled; `doctor` found something
BAD_INPUT: Final = 2  # the request, an option or a setting has to be changed
NO_SERVICE: Final = 3  # no broker, ledger or worker answers, or not in time
INTERRUPTED: Final = 130  # Ctrl-C, as a shell has it

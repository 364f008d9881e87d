"""A worker whose broker hands out again soon what nobody acknowledges."""

from typing import Final

TIMEOUT_S: Final = 2.0

# To be run as `python -c IMPATIENT` before the command line of a worker.
IMPATIENT: Final = f"""
import sys
from workers.brokers import settings
settings.VISIBILITY_TIMEOUT_S = {TIMEOUT_S}
from workers.__main__ import main
sys.argv = ["runturn", *sys.argv[4:]]
main()
"""

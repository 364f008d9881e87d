"""`runturn` with a company's set-up: `python -m tests.instruments.worker`, as `runturn` otherwise.

The module `company` is in the directory that COMPANY names.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from workers.cli.main import main

if __name__ == "__main__":
    sys.path.insert(0, os.environ["COMPANY"])
    import_module("company")
    main()

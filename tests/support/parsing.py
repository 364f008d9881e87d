"""Python's parser without garbage collection.

Python 3.11 aborts a whole run with "AST constructor recursion depth mismatch" if, during parsing, a finalizer of
something left by a failed test raises: reporting that error parses, too. pytest parses for each failure it
explains, so one failure could hide all others.
"""

from __future__ import annotations

import ast
import gc
from typing import Any

_parse = ast.parse


def parse(*args: Any, **kwargs: Any) -> Any:
    """Call `ast.parse` with garbage collection disabled."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return _parse(*args, **kwargs)
    finally:
        if collects:
            gc.enable()


ast.parse = parse

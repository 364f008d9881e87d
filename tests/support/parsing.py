"""Python's parser, undisturbed.

Python 3.11 ends a whole run with "AST constructor recursion depth mismatch" when, while it parses, the finaliser
of something that a failed test left behind fails: to explain that, Python parses, too. pytest parses for each
failure that it explains, so one failure could hide all others.
"""

from __future__ import annotations

import ast
import gc
from typing import Any

_parse = ast.parse


def parse(*args: Any, **kwargs: Any) -> Any:
    """Call `ast.parse` without a break for garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return _parse(*args, **kwargs)
    finally:
        if collects:
            gc.enable()


ast.parse = parse

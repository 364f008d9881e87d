"""Functions that fail once, and then do what they always do."""

from __future__ import annotations

from typing import Any

import pytest


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception) -> None:
    """Make the next call of an attribute raise the error."""
    failures, function = iter([error]), getattr(owner, name)

    def failing(*args: Any, **kwargs: Any) -> Any:
        if failure := next(failures, None):
            raise failure
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)

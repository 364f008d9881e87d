"""Runtime type checks of values from third-party code.

Dataclasses are checked field by field. A subclass may add fields.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from adapters.command import Command
from adapters.errors import KINDS, TurnError
from adapters.usage import ModelUsage, Tokens


def fault_in(value: object) -> str | None:
    """Return the first fault in a value of one of our classes, naming the field; None if there is none."""
    if is_dataclass(value) and not isinstance(value, type):
        for name, hint in _fields(type(value)).items():
            fault = _fault(getattr(value, name, _MISSING), hint)
            if fault is not None:
                return f".{name}{fault}" if fault.startswith((".", "[")) else f".{name} {fault}"
    rules = (rule for kind, rule in _RULES.items() if isinstance(value, kind))
    return next((broken for rule in rules if (broken := rule(value)) is not None), None)


_MISSING = object()


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def _fault(value: object, hint: Any) -> str | None:
    """Return the fault of a value where the type `hint` is expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if value is _MISSING:
        return "is missing"
    if origin in (Union, types.UnionType):
        faults = [_fault(value, choice) for choice in arguments]
        return None if None in faults else faults[0]
    if origin is None or not isinstance(origin, type):
        return _of_class(value, hint)
    if not isinstance(value, origin):
        return f"is {type(value).__name__}, not {origin.__name__}"
    return _inside(value, arguments) if isinstance(value, Mapping | tuple | frozenset) else None


def _of_class(value: object, kind: Any) -> str | None:
    if not isinstance(kind, type):
        return None  # Any, JSON
    if kind is float and isinstance(value, int):
        return None
    if not isinstance(value, kind):
        return f"is {type(value).__name__}, not {kind.__name__}"
    return fault_in(value)


def _inside(value: Any, arguments: tuple[Any, ...]) -> str | None:
    """Return the first fault in a mapping, a tuple or a set."""
    if isinstance(value, Mapping):
        of_key, of_value = arguments
        items = [(key, key, of_key) for key in value] + [(key, value[key], of_value) for key in value]
    elif isinstance(value, tuple) and Ellipsis not in arguments:
        if len(value) != len(arguments):
            return f"has {len(value)} items instead of {len(arguments)}"
        items = [(number, item, hint) for number, (item, hint) in enumerate(zip(value, arguments, strict=True))]
    else:
        items = [(number, item, arguments[0]) for number, item in enumerate(value)]
    for place, item, hint in items:
        if (fault := _fault(item, hint)) is not None:
            return f"[{place!r}]{'' if fault.startswith(('.', '[')) else ' '}{fault}"
    return None


def _command(command: Command) -> str | None:
    if not command.argv:
        return ".argv is empty: it names no program"
    texts = (*command.argv, command.cwd, *command.env, *command.env.values())
    if any("\0" in text for text in texts):
        return "contains a NUL character, which no process can receive"
    if not command.cwd.startswith("/"):
        return ".cwd is not an absolute path"
    return ".stop is empty: nothing would terminate the agent" if not command.stop else None


def _billed(used: ModelUsage) -> str | None:
    # Additions to a running estimate may be negative; billed tokens may not.
    negative = [each.name for each in fields(Tokens) if getattr(used.tokens, each.name) < 0]
    if negative:
        return f".tokens.{negative[0]} is below 0"
    bad = used.cost_usd is not None and not (math.isfinite(used.cost_usd) and used.cost_usd >= 0)
    return ".cost_usd is not an amount of money" if bad else None


def _error(error: TurnError) -> str | None:
    return None if KINDS.get(error.kind) is type(error) else f"is not a defined error kind: {type(error).__name__}"


_RULES: dict[type, Callable[[Any], str | None]] = {
    Command: _command,
    ModelUsage: _billed,
    TurnError: _error,
}

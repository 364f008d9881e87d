"""Plain Python functions as tools of an agent.

    def lookup(customer: int, fields: list[str] = []) -> Customer:
        "Look up a customer."

The arguments' JSON Schema comes from the annotations, the description from the docstring. Arguments are validated;
the return value is rendered as text; an exception is reported to the model as the tool's error. A function may be
`async`; otherwise it runs in a thread. A parameter annotated with `ToolContext` is filled in.

An operator registers functions as entry points of the group `runturn.tools`, or in the setting `tools`, as
`package.module:function`. Requests refer to them by name. If a worker dies before answering a call, the next
worker repeats it, so functions with side effects should be idempotent.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import entry_points

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_json

from adapters.errors import InvalidRequest

GROUP = "runturn.tools"
_RAISED = (Exception, SystemExit)  # a function's sys.exit() must fail its call, not end the worker


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Context of the turn that calls a tool."""

    turn_id: str
    deadline_at: float | None  # the turn's deadline, Unix time in seconds
    remaining_tokens: int | None  # None: no limit


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Answer of a tool to the model."""

    text: str
    is_error: bool = False


class ToolFunction:
    """Function wrapped as a tool."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        """Raise TypeError for a function whose parameters cannot be described."""
        self.name = name
        self._function = function
        self._model, self._context = _arguments(name, function)

    @property
    def description(self) -> str:
        """Return the function's docstring, or its name."""
        return inspect.getdoc(self._function) or self.name

    @cached_property
    def schema(self) -> dict[str, JsonValue]:
        """Return the JSON Schema of the arguments."""
        return self._model.model_json_schema()

    async def call(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolAnswer:
        """Call the function and return its answer; an exception becomes an error answer."""
        try:
            given = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
            return ToolAnswer("invalid arguments: " + "; ".join(faults), is_error=True)
        values = {name: getattr(given, name) for name in type(given).model_fields}
        if self._context is not None:
            values[self._context] = context
        try:
            return ToolAnswer(render(await self._result(values)))
        except _RAISED as error:
            return ToolAnswer(f"{type(error).__name__}: {error}", is_error=True)

    async def _result(self, values: dict[str, object]) -> object:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**values)
        import anyio.to_thread  # noqa: PLC0415 - a dependency of the SDK, which is our only caller

        return await anyio.to_thread.run_sync(partial(self._function, **values))


def render(value: object) -> str:
    """Return a function's result as text: its own `render()`, else JSON, else its message."""
    own = getattr(value, "render", None)
    text = str(own()) if callable(own) else _as_json(value)
    if text:
        return text
    message = getattr(value, "message", None)
    return message if isinstance(message, str) else str(value)


def _as_json(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value).decode()
    except PydanticSerializationError:
        return ""


def _arguments(name: str, function: Callable[..., object]) -> tuple[type[BaseModel], str | None]:
    """Return the model of the arguments and the name of the context parameter, if any."""
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, tuple[object, object]] = {}
    context = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"tool {name}: parameter {parameter.name} cannot be passed by name")
        if hints.get(parameter.name) is ToolContext:
            context = parameter.name
            continue
        if parameter.name not in hints:
            raise TypeError(f"tool {name}: parameter {parameter.name} has no annotation")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)  # type: ignore[call-overload]
    return model, context


class Toolbox:
    """Functions registered by the operator, by name; imported when a turn uses them."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = references

    @classmethod
    def installed(cls, configured: Iterable[str] = ()) -> Toolbox:
        """Return a toolbox of the installed entry points and the configured `package.module:function` names."""
        found = {point.name: point.value for point in entry_points(group=GROUP)}
        return cls(found | {reference.rpartition(":")[2]: reference for reference in configured})

    @property
    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._references)

    def check(self, names: Iterable[str]) -> None:
        """Raise InvalidRequest for a name that is not registered."""
        for name in names:
            if name not in self._references:
                known = ", ".join(self.names) or "none"
                raise InvalidRequest(f"there is no tool {name!r}; registered: {known}", field="options.tools")

    def load(self, names: Iterable[str]) -> tuple[ToolFunction, ...]:
        """Import and return the named tools. Raise InvalidRequest if one cannot be loaded."""
        names = tuple(names)
        self.check(names)
        return tuple(self._load(name) for name in names)

    def _load(self, name: str) -> ToolFunction:
        module, _, attribute = self._references[name].partition(":")
        try:
            return ToolFunction(name, getattr(importlib.import_module(module), attribute))
        except _RAISED as error:
            raise InvalidRequest(
                f"tool {name!r} cannot be loaded: {error}; the worker's Python must be able to import {module}",
                field="options.tools",
            ) from error

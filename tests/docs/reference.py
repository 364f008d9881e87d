"""The parts of documents that the code writes: settings, options, fields of requests, error kinds, metrics.

They stand between `<!-- generated: NAME -->` and `<!-- end -->`; `make docs` writes them anew.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from types import UnionType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from adapters.claude_code.options import FLAGS, ClaudeCodeOptions
from adapters.claude_sdk.options import ClaudeSdkOptions, Permissions, RemoteServer, Sandbox, StdioServer, Subagent
from adapters.codex.options import CodexOptions
from adapters.errors import KINDS, Paid, Retry, TurnError
from adapters.gemini.options import GeminiOptions
from adapters.protocol.after import After
from adapters.protocol.request import TurnRequest
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.task import Task
from adapters.protocol.workspace import Collect, HostMount, Worktree
from adapters.replay_agent import ScriptedOptions
from adapters.requirements import Needs
from ops.settings import PREFIX, Settings
from tests.docs import rooms
from tests.docs.catalogue import of_exporter, of_workers
from tests.tools.agents.results import load
from tests.tools.agents.table import tables

_REGION = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FORMATS = {"path": "path", "password": "URL, secret", "date-time": "date and time", "object": "map"}
_METRIC = ("Metric", "Type", "Labels", "Meaning")
_RETRIED = {Retry.NEVER: "no", Retry.BACKOFF: "yes", Retry.WAIT: "waits"}
_PAID = {Paid.NEVER: "no", Paid.IF_BOOKED: "if tokens are booked", Paid.IF_BILLED: "yes"}

# Tables in the options of `claude-sdk`.
_LIVE: dict[str, type[BaseModel]] = {
    "permissions": Permissions,
    "sandbox": Sandbox,
    "mcp-server-stdio": StdioServer,
    "mcp-server-remote": RemoteServer,
    "subagent": Subagent,
}

Row = tuple[str, ...]
Schema = Mapping[str, Any]


def generated(text: str) -> str:
    """A document with its generated parts as they have to be."""
    return _REGION.sub(lambda match: f"{match[1]}\n{_PARTS[match[2]]()}\n{match[3]}", text)


def regions(text: str) -> set[str]:
    """The names of the generated parts of a document."""
    return {match[2] for match in _REGION.finditer(text)}


def parts() -> set[str]:
    """The names of all generated parts."""
    return set(_PARTS)


def models() -> dict[str, type[BaseModel]]:
    """All that is described field by field, by the name of its table."""
    tables = dict(_tables(Settings))
    return {
        "": Settings,
        **tables,
        "claude-code": ClaudeCodeOptions,
        "claude-sdk": ClaudeSdkOptions,
        **_LIVE,
        "codex": CodexOptions,
        "gemini": GeminiOptions,
        "scripted": ScriptedOptions,
        "request": TurnRequest,
        "after": After,
        "needs": Needs,
        "task": Task,
        "session": SessionRequest,
        "mounts": HostMount,
        "worktree": Worktree,
        "collect": Collect,
    }


def _tables(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The settings that are tables, and those that are lists of tables."""
    for name, field in model.model_fields.items():
        if (table := _model_in(field.annotation)) is not None:
            yield name, table


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model that a value is, or holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def _settings() -> str:
    tables = dict(_tables(Settings))
    schema = Settings.model_json_schema()["properties"]
    single = {name for name in tables if schema[name].get("type") not in ("array", "object")}
    own = (
        (f"`{PREFIX}{name.upper()}`", *_described(field, schema[name]))
        for name, field in Settings.model_fields.items()
        if name not in single
    )
    sections = [_table(("Variable", "Type", "Default", "Meaning"), own)]
    for name, model in tables.items():
        if name in single:
            sections.append(f"### Table `{name}`\n\n{_intro(model)}\n\n" + _of_table(name, model))
        else:
            sections.append(f"### Tables `{name}`\n\n{_intro(model)}\n\n" + _fields(model, "Field"))
    return "\n".join(sections)


def _of_table(table: str, model: type[BaseModel]) -> str:
    schema = model.model_json_schema()["properties"]
    rows = (
        (f"`{PREFIX}{table.upper()}__{name.upper()}`", *_described(field, schema[name]))
        for name, field in model.model_fields.items()
    )
    return _table(("Variable", "Type", "Default", "Meaning"), rows)


def _fields(model: type[BaseModel], title: str) -> str:
    schema = model.model_json_schema()["properties"]
    rows = ((f"`{name}`", *_described(field, schema[name])) for name, field in model.model_fields.items())
    return _table((title, "Type", "Default", "Meaning"), rows)


def _claude_code() -> str:
    schema = ClaudeCodeOptions.model_json_schema()["properties"]
    rows = (
        (f"`{name}`", f"`{FLAGS[name]}`" if name in FLAGS else "", *_described(field, schema[name]))
        for name, field in ClaudeCodeOptions.model_fields.items()
    )
    return _table(("Option", "Flag", "Type", "Default", "Meaning"), rows)


def _claude_sdk() -> str:
    """What it has beside the options of `claude-code`."""
    schema = ClaudeSdkOptions.model_json_schema()["properties"]
    rows = (
        (f"`{name}`", *_described(field, schema[name]))
        for name, field in ClaudeSdkOptions.model_fields.items()
        if name not in ClaudeCodeOptions.model_fields
    )
    return _table(("Option", "Type", "Default", "Meaning"), rows)


def _errors() -> str:
    rows = (
        (f"`{kind}`", _RETRIED[error.default_retry], _paid(error), inspect.cleandoc(error.__doc__ or ""))
        for kind, error in KINDS.items()
    )
    return _table(("Kind", "Retried", "Counts as paid", "Meaning"), rows)


def _paid(error: type[TurnError]) -> str:
    return _PAID[error.paid] if error.default_retry is Retry.BACKOFF else ""


def _intro(model: type[BaseModel]) -> str:
    """What the class says of itself, without its name."""
    text = inspect.cleandoc(model.__doc__ or "").partition(": ")[2]
    return text[0].upper() + text[1:]


def _described(field: FieldInfo, schema: Schema) -> Row:
    choices = ", ".join(f"`{value}`" for value in _choices(field.annotation))
    return choices or _type(schema), _default(field), field.description or ""


def _choices(annotation: object) -> Iterator[str]:
    """The values of an enumeration, if the field's value is one."""
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        yield from annotation
    for part in get_args(annotation) if isinstance(annotation, UnionType) else ():
        yield from _choices(part)


def _type(schema: Schema) -> str:
    """What a value has to be, in words."""
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            return _type(choice)
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind: str = "table" if "$ref" in schema else schema.get("type", "any")
    if kind in ("integer", "number"):
        return kind + _bounds(schema)
    if kind == "array":
        of = schema.get("items", {})
        return "list of tables" if "$ref" in of else f"list of {of.get('type', 'value')}s"
    return _FORMATS.get(schema.get("format", kind), kind)


def _bounds(schema: Schema) -> str:
    if "maximum" in schema and schema["maximum"] < 10**9:
        return f", {schema['minimum']} to {schema['maximum']}"
    if "minimum" in schema:
        return f", at least {schema['minimum']}"
    return f", above {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value in (None, "") or field.default_factory is not None or isinstance(value, BaseModel):
        return ""  # the meaning says what is so then
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _table(columns: Row, rows: Iterator[Row]) -> str:
    lines = (columns, tuple("---" for _ in columns), *rows)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


_PARTS: dict[str, Callable[[], str]] = {
    "versions": lambda: tables(load()),
    "settings": _settings,
    "claude-code": _claude_code,
    "claude-sdk": _claude_sdk,
    **{name: partial(_fields, model, "Field") for name, model in _LIVE.items()},
    "codex": partial(_fields, CodexOptions, "Option"),
    "gemini": partial(_fields, GeminiOptions, "Option"),
    "scripted": partial(_fields, ScriptedOptions, "Option"),
    "request": partial(_fields, TurnRequest, "Field"),
    "after": partial(_fields, After, "Field"),
    "needs": partial(_fields, Needs, "Field"),
    "task": partial(_fields, Task, "Field"),
    "session": partial(_fields, SessionRequest, "Field"),
    "mounts": partial(_fields, HostMount, "Field"),
    "worktree": partial(_fields, Worktree, "Field"),
    "collect": partial(_fields, Collect, "Field"),
    "errors": _errors,
    "rooms": rooms.picture,
    "room-contents": lambda: _table(("Subpackage or module", "Contents"), rooms.table()),
    "worker-metrics": lambda: _table(_METRIC, of_workers()),
    "exporter-metrics": lambda: _table(_METRIC, of_exporter()),
}

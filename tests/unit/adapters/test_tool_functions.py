"""Python functions as tools: schema, arguments, results, errors."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from adapters.errors import InvalidRequest
from adapters.toolkit import tool_functions
from adapters.toolkit.tool_functions import Toolbox, ToolContext, ToolFunction, render
from tests.docs.pages import BLOCKS

CONTEXT = ToolContext("t1", 12.0, 99)


@dataclass(frozen=True)
class Point:
    """Without a face of its own."""

    x: int
    y: int


class Model(BaseModel):
    """Of pydantic."""

    name: str


class Rendered:
    """Renders itself."""

    def __init__(self, text: str, message: str = "") -> None:
        self._text = text
        self.message = message

    def render(self) -> str:
        """As text."""
        return self._text


class Opaque:
    """Has a message alone."""

    message = "all is well"


def search(
    text: Annotated[str, Field(description="what for")], kind: Literal["a", "b"] = "a", at: Point | None = None
) -> list[object]:
    """Searches."""
    return [text, kind, at]


async def about(context: ToolContext, scale: float = 1.0) -> dict[str, object]:
    """Says what it knows."""
    return {
        "turn": context.turn_id,
        "left": context.remaining_tokens,
        "until": context.deadline_at,
        "scale": scale,
    }


def fails() -> None:
    """Raises."""
    raise LookupError("nothing there")


def test_schema_comes_from_the_annotations() -> None:
    tool = ToolFunction("search", search)
    assert (tool.name, tool.description) == ("search", "Searches.")
    assert tool.schema["required"] == ["text"]
    assert tool.schema["additionalProperties"] is False
    properties = tool.schema["properties"]
    assert isinstance(properties, dict)
    assert properties["text"] == {"description": "what for", "title": "Text", "type": "string"}
    assert properties["kind"] == {"default": "a", "enum": ["a", "b"], "title": "Kind", "type": "string"}
    assert "context" not in str(ToolFunction("about", about).schema)


async def test_arguments_are_parsed_and_validated() -> None:
    tool = ToolFunction("search", search)
    answer = await tool.call({"text": "x", "at": {"x": 1, "y": 2}}, CONTEXT)
    assert (answer.text, answer.is_error) == ('["x","a",{"x":1,"y":2}]', False)
    for wrong in ({}, {"text": 1}, {"text": "x", "kind": "c"}, {"text": "x", "more": 1}):
        refused = await tool.call(wrong, CONTEXT)
        assert refused.is_error
        assert refused.text.startswith("invalid arguments: ")


async def test_context_is_filled_in_where_it_is_asked_for() -> None:
    answer = await ToolFunction("about", about).call({"scale": 2}, CONTEXT)
    assert answer.text == '{"turn":"t1","left":99,"until":12.0,"scale":2.0}'


async def test_what_it_raises_is_told_to_the_model() -> None:
    answer = await ToolFunction("fails", fails).call({}, CONTEXT)
    assert (answer.text, answer.is_error) == ("LookupError: nothing there", True)


def exits() -> None:
    """As a command line's function does."""
    sys.exit("usage: no")


async def exits_on_the_loop() -> None:
    """The same."""
    sys.exit(2)


async def test_tool_that_exits_does_not_take_the_worker_with_it() -> None:
    answer = await ToolFunction("exits", exits).call({}, CONTEXT)
    assert (answer.text, answer.is_error) == ("SystemExit: usage: no", True)
    answer = await ToolFunction("exits", exits_on_the_loop).call({}, CONTEXT)
    assert (answer.text, answer.is_error) == ("SystemExit: 2", True)


def test_tool_whose_module_exits_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exiting_tool.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidRequest, match="tool 'x' cannot be loaded: 3"):
        Toolbox({"x": "exiting_tool:x"}).load(("x",))


async def test_plain_functions_run_beside_the_loop() -> None:
    def where() -> str:
        return threading.current_thread().name

    answer = await ToolFunction("where", where).call({}, CONTEXT)
    assert answer.text != threading.current_thread().name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Rendered("drawn"), "drawn"),
        (Rendered("", "said"), "said"),
        (Point(1, 2), '{"x":1,"y":2}'),
        (Model(name="n"), '{"name":"n"}'),
        ({"a": [1]}, '{"a":[1]}'),
        ("as it is", "as it is"),
        (None, "null"),
        (Opaque(), "all is well"),
    ],
)
def test_results_are_rendered(value: object, text: str) -> None:
    assert render(value) == text


def test_parameters_without_names_or_types_are_refused() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        return x

    def many(*x: int) -> int:
        return len(x)

    for function in (untyped, many):
        with pytest.raises(TypeError, match=r"parameter x (has no|cannot)"):
            ToolFunction("f", function)


def test_functions_are_found_by_entry_point_and_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("look", f"{__name__}:search", tool_functions.GROUP)
    monkeypatch.setattr(tool_functions, "entry_points", lambda group: [point])
    box = Toolbox.installed((f"{__name__}:about", "nowhere.at_all:missing"))
    assert box.names == ["about", "look", "missing"]
    assert [tool.description for tool in box.load(("look", "about"))] == ["Searches.", "Says what it knows."]
    with pytest.raises(InvalidRequest, match="tool 'missing' cannot be loaded: No module named 'nowhere'"):
        box.load(("missing",))
    with pytest.raises(InvalidRequest, match="no tool 'nothing'; registered: about, look, missing"):
        box.check(("nothing",))


async def test_the_example_of_the_documents() -> None:
    (block,) = [block for block in BLOCKS if "async def customer" in block.text]
    example: dict[str, Any] = {}
    exec(block.text, example)
    answer = await ToolFunction("customer", example["customer"]).call({"number": 7}, CONTEXT)
    assert answer.text == '{"name":"customer 7","asked_by":"t1"}'
